/* convert CHECKPOINT ARTIFACT: a Hugging Face directory becomes a Core ML package, with progress. */
#include <millet.h>
#include <stdio.h>

static bool progress(void *ctx, const char *tensor, uint64_t done, uint64_t total, uint64_t done_tensors,
                     uint64_t tensors) {
    (void)tensor;
    *(bool *)ctx = total > 0; /* 0 while the graph is built */
    if (total)
        fprintf(stderr, "\r%3.0f %% (%llu of %llu tensors)", 100.0 * (double)done / (double)total,
                (unsigned long long)done_tensors, (unsigned long long)tensors);
    return true; /* false would cancel and leave the output as it was */
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: convert CHECKPOINT ARTIFACT\n");
        return 2;
    }
    millet_error e;
    char *summary = NULL;
    bool shown = false;
    millet_convert_options o = {.size = sizeof o,
                                .context = 256,
                                .prefill = "16",
                                .overwrite = true,
                                .progress = progress,
                                .ctx = &shown};
    bool ok = millet_convert(argv[1], argv[2], &o, &summary, &e);
    if (shown) fprintf(stderr, "\n");
    if (ok)
        fputs(summary, stdout);
    else
        fprintf(stderr, "%s\n", e.message);
    millet_free(summary);
    return !ok;
}
