"""Texts for the page. What is expected of MARKDOWN was written by hand from the CommonMark and GFM specifications; where the page
departs from them, a comment says so. Headings are two levels lower, because the page has levels 1 and 2 itself."""
COPY = '<button class="plain" type="button"><svg aria-hidden="true"><use href="#i-copy"></use></svg>Copy</button>'


def code(language, text):
    label = f"Code, {language}" if language else "Code"
    return (f'<figure class="code"><figcaption><span>{language or "text"}</span>{COPY}</figcaption>'
            f'<pre tabindex="0" role="region" aria-label="{label}"><code>{text}</code></pre></figure>')


MARKDOWN = [
    ("plain", "<p>plain</p>"),
    ("two\nlines", "<p>two<br>lines</p>"),  # GFM in comments: a line's end is one
    ("one\n\ntwo\r\n\r\nthree", "<p>one</p><p>two</p><p>three</p>"),
    ("# One\n### Three ##\n###### Six\n####### seven", "<h3>One</h3><h5>Three</h5><h6>Six</h6><p>####### seven</p>"),
    ("#no heading", "<p>#no heading</p>"),
    ("#", "<h3></h3>"),
    ("*em* **strong** ***both*** _em_ __strong__ ~~del~~",
     "<p><em>em</em> <strong>strong</strong> <em><strong>both</strong></em> <em>em</em> <strong>strong</strong> <del>del</del></p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("*a **b** c*", "<p><em>a <strong>b</strong> c</em></p>"),
    ("**a *b***", "<p><strong>a <em>b</em></strong></p>"),
    ("2 * 3 * 4 and 2*3", "<p>2 * 3 * 4 and 2*3</p>"),
    ("snake_case_name and _a_b", "<p>snake_case_name and _a_b</p>"),
    ("**open", "<p>**open</p>"),
    ("un*frigging*believable", "<p>un<em>frigging</em>believable</p>"),
    ("\\*not\\* \\[x\\] \\a", "<p>*not* [x] \\a</p>"),
    ("`a` ``b`c`` `<b>` ` `` `", "<p><code>a</code> <code>b`c</code> <code>&lt;b&gt;</code> <code>``</code></p>"),
    ("`unclosed", "<p>`unclosed</p>"),
    ("*a `*` b*", "<p><em>a <code>*</code> b</em></p>"),
    ("[a](https://e.org)", '<p><a href="https://e.org/">a</a></p>'),
    ("[a *b*](https://e.org/x_(y) \"title\")", '<p><a href="https://e.org/x_(y)">a <em>b</em></a></p>'),
    ("[a](<https://e.org/b>)", '<p><a href="https://e.org/b">a</a></p>'),
    ("[[1]](https://e.org)", '<p><a href="https://e.org/">[1]</a></p>'),
    ("[x] (y) [z]", "<p>[x] (y) [z]</p>"),
    ("![alt](https://e.org/p.png)", '<p><a href="https://e.org/p.png">alt</a></p>'),  # nothing is fetched
    ("see https://e.org/a_b_c. And (http://e.org/x).", '<p>see <a href="https://e.org/a_b_c">https://e.org/a_b_c</a>. And (<a href="http://e.org/x">http://e.org/x</a>).</p>'),
    ("https://e.org/a_(b) xhttps://e.org", '<p><a href="https://e.org/a_(b)">https://e.org/a_(b)</a> xhttps://e.org</p>'),
    ("<https://e.org> <me@e.org>", '<p><a href="https://e.org/">https://e.org</a> <a href="mailto:me@e.org">me@e.org</a></p>'),
    ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
    ("[a](/v1/models) [b](#top) [c](//e.org)", "<p>[a](/v1/models) [b](#top) [c](//e.org)</p>"),  # only whole addresses
    ("- a\n- b\n  - c\n    - d\n- e", "<ul><li>a</li><li>b<ul><li>c<ul><li>d</li></ul></li></ul></li><li>e</li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("1. a\n   - b\n\n     more\n2. c", '<ol start="1"><li><p>a</p><ul><li><p>b</p><p>more</p></li></ul></li><li>c</li></ol>'),
    ("1. a\n  - b\n2. c", '<ol start="1"><li>a<ul><li>b</li></ul></li><li>c</li></ol>'),  # models indent by two
    ("* a\n\n* b", "<ul><li>a</li><li>b</li></ul>"),
    ("- a\nlazy\n\nafter", "<ul><li>a<br>lazy</li></ul><p>after</p>"),
    ("text\n- a", "<p>text</p><ul><li>a</li></ul>"),
    ("- [x] a\n- [ ] b", '<ul><li><input type="checkbox" disabled="" aria-label="done"> a</li><li><input type="checkbox" disabled="" aria-label="open"> b</li></ul>'),
    ("- a\n  ```\n  x\n  ```", "<ul><li>a" + code("", "x") + "</li></ul>"),
    ("> a\nb\n> - c\n\nd", "<blockquote><p>a<br>b</p><ul><li>c</li></ul></blockquote><p>d</p>"),
    ("---\n***\n_ _ _", "<hr><hr><hr>"),
    ("```c\nint *x;\n\n# <no>\n```\nafter", code("c", "int *x;\n\n# &lt;no&gt;") + "<p>after</p>"),
    ("````\n```\n````", code("", "```")),
    ("~~~py x\na\n~~~", code("py", "a")),
    ("```\nopen", code("", "open")),
    ("```", code("", "")),
    ("``` a`b", "<p>``` a`b</p>"),
    ("| a | b |\n|---|:-:|\n| 1 | `x` |\n| 2 \\| 3 |", '<div class="table" tabindex="0" role="region" aria-label="Table"><table><thead><tr><th>a</th><th class="center">b</th></tr></thead>'
     '<tbody><tr><td>1</td><td class="center"><code>x</code></td></tr><tr><td>2 | 3</td><td class="center"></td></tr></tbody></table></div>'),
    ("a | b\n--|--:\n1 | 2\n\nafter", '<div class="table" tabindex="0" role="region" aria-label="Table"><table><thead><tr><th>a</th><th class="right">b</th></tr></thead>'
     '<tbody><tr><td>1</td><td class="right">2</td></tr></tbody></table></div><p>after</p>'),
    ("a | b\n--- | --- | ---", "<p>a | b<br>--- | --- | ---</p>"),
    ("a<br>b <b>c</b> &amp;", "<p>a<br>b &lt;b&gt;c&lt;/b&gt; &amp;amp;</p>"),  # other HTML is text
    ("<script>x</script>", "<p>&lt;script&gt;x&lt;/script&gt;</p>"),
]

HOSTILE = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "[a](javascript:window.hit=1) [b](JaVaScRiPt:window.hit=1) [c](java\tscript:window.hit=1) [d](<javascript:window.hit=1>)",
    "[a](data:text/html,<script>window.hit=1</script>) [b](vbscript:x) [c](blob:x) [d](file:///etc/passwd)",
    "<javascript:window.hit=1> <https://e.org/\"onmouseover=window.hit=1>",
    "![a](x\" onerror=\"window.hit=1) [a](https://e.org/\"onmouseover=\"window.hit=1)",
    "```<img src=x onerror=window.hit=1>\n<script>window.hit = 1</script>\n```",
    "```\" onmouseover=\"window.hit=1\nx\n```",
    "| <img src=x onerror=window.hit=1> | b |\n|---|---|\n| <svg onload=window.hit=1> | d |",
    "# <iframe srcdoc='<script>parent.hit=1</script>'>\n\n> <object data=x>\n\n- <style>*{display:none}</style>",
    "<a href='javascript:window.hit=1' style='position:fixed;inset:0'>x</a> <base href='//e.org/'> <meta http-equiv=refresh content='0;//e.org'>",
    "<math><mi xlink:href='javascript:window.hit=1'>x</mi></math> </div></article><marquee onstart=window.hit=1>",
    "https://e.org/<script>window.hit=1</script> [x](https://user:pw@e.org) \u202etxt.exe\u0000\ufffe",
    "[__proto__](https://e.org) [constructor](constructor) `__proto__`",
]

# unit * 20,000 + tail
LINES = [("*a ", ""), ("**a*", "b"), ("_a", ""), ("`" * 2 + "a", ""), ("`a``", ""), ("[", ""), ("[a](", ""), ("![", "]("), ("[a", "](x)"), ("<", ""), ("<a", ">"),
         ("<https://", ""), ("http://", ""), ("https://[", ""), ("https://e.org/).", "x"), ("# ", ""), ("#", " x#"), (" ", "x"), ("# a ", "b"), ("> ", "x"),
         ("- ", "x"), ("- - ", "x"), ("1. ", "x"), ("|", "\n|-"), ("|-", "\n|-|-x"), ("a|b\n", ""), ("a|\n-|\n", ""), ("-|", " x"), ("```", "x`"), ("~", "x"), ("* * ", "x"), ("\\", ""),
         ("~~a~", ""), ("***a**", ""), ("- a\n", ""), ("- a\n\n", ""), ("> a\n", ""), ("\t", "- x"), ("[x](a ", ""), ("[x](<a", ""), ("[x](a \"", ""), ("a@a.", ">"), ("<a@a.", "")]

SAMPLE = """# A sample

Here is **bold**, *italic*, ***both***, ~~gone~~, `inline code` and a [link](https://example.org/a_(b)) or https://example.org/x_y.

## Lists

1. First, with a nested list:
   - one
   - two with `code`
2. Second

- [x] done
- [ ] open

> A quotation, which goes on
> for two lines.

| Op | Rank | Time |
|:---|:--:|---:|
| `linear` | 2 | 1.25 ms |
| `softmax` | 4 | 0.03 ms |

```python
def generate(model, prompt, *, temperature=0.7, top_p=0.95, max_tokens=256, seed=None, stop=("<|im_end|>",)):
    \"\"\"A long line that scrolls inside of its box and never moves the page.\"\"\"
    for token in model.stream(prompt):
        print(token, end="", flush=True)
```

---

Text after a rule: 2 * 3 * 4 = 24, and <script>alert(1)</script> is text.
"""
