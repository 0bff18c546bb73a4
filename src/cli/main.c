#include <stdio.h>

int main(void) {
    printf("millet %s\n", MILLET_VERSION);
    return 0;
}
