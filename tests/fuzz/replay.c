/* Stands in for libFuzzer: runs a fuzz target once over each file of the directories given. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int run(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) return perror(path), 1;
    long n = ftell(f);
    rewind(f);
    uint8_t *p = malloc(n > 0 ? (size_t)n : 1);
    int bad = n < 0 || !p || fread(p, 1, (size_t)n, f) != (size_t)n;
    fclose(f);
    if (bad)
        perror(path);
    else
        LLVMFuzzerTestOneInput(p, (size_t)n);
    free(p);
    return bad;
}

int main(int argc, char **argv) {
    int count = 0, bad = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) return perror(argv[i]), 1;
        for (struct dirent *f; (f = readdir(d));) {
            char path[4096];
            if (f->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], f->d_name);
            bad |= run(path);
            count++;
        }
        closedir(d);
    }
    printf("%d inputs replayed\n", count);
    return bad || !count;
}
