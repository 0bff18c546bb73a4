// chat ARTIFACT: what millet.h looks like from C++. Two turns on one timeline: the second one feeds only what
// is new.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <millet.h>

struct closing {
    void operator()(millet_lm *m) const { millet_lm_close(m); }
    void operator()(millet_generator *g) const { millet_generator_free(g); }
    void operator()(int32_t *ids) const { millet_free(ids); }
};
template <class T> using owned = std::unique_ptr<T, closing>;

static bool collect(void *ctx, int32_t, const char *text, size_t len) {
    static_cast<std::string *>(ctx)->append(text, len);
    return true; // false ends the generation. An exception must not leave a callback
}

static bool turn(const millet_lm *m, millet_generator *g, std::vector<int32_t> &ids, const std::string &text,
                 millet_error &e) {
    int32_t *more = nullptr;
    size_t n = 0;
    if (!millet_encode(millet_lm_tokenizer(m), text.data(), text.size(), &more, &n, &e)) return false;
    ids.insert(ids.end(), more, more + n);
    millet_free(more);

    std::string answer;
    millet_generate_options o = {};
    o.size = sizeof o;
    o.max_new_tokens = 24;
    o.on_token = collect;
    o.ctx = &answer;
    millet_generation r = {};
    r.size = sizeof r;
    if (!millet_generator_run(g, ids.data(), ids.size(), &o, &r, &e)) return false;
    const owned<int32_t> made(r.ids);
    ids.insert(ids.end(), r.ids, r.ids + r.n_ids);
    std::printf("%s (%zu of %zu tokens were there already)\n", answer.c_str(), r.reused_tokens,
                r.prompt_tokens);
    return true;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: chat ARTIFACT\n");
        return 2;
    }
    millet_error e = {};
    const owned<millet_lm> m(millet_lm_open(argv[1], nullptr, &e));
    const owned<millet_generator> g(m ? millet_generator_new(m.get(), nullptr, &e) : nullptr);
    std::vector<int32_t> ids;
    const bool ok = g &&
                    turn(m.get(), g.get(), ids,
                         "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
                         "<|im_start|>assistant\n<think>\n\n</think>\n\n",
                         e) &&
                    turn(m.get(), g.get(), ids,
                         "\n<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n"
                         "<|im_start|>assistant\n<think>\n\n</think>\n\n",
                         e);
    if (!ok) std::fprintf(stderr, "%s\n", e.message);
    return !ok;
}
