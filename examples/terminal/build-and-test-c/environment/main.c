#include <stdio.h>
#include "rle.h"

#define MOST (1 << 20)

static unsigned char in[MOST], out[2 * MOST];

/* rle -e encodes standard input, rle -d decodes it. */
int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "-e") && strcmp(argv[1], "-d"))) {
        fprintf(stderr, "usage: rle -e|-d\n");
        return 2;
    }
    size_t n = fread(in, 1, sizeof in, stdin);
    size_t written = argv[1][1] == 'e' ? rle_encode(in, n, out) : rle_decode(in, n, out, sizeof out);
    if (written == (size_t)-1) {
        fprintf(stderr, "rle: not an encoded text\n");
        return 1;
    }
    fwrite(out, 1, written, stdout);
    return 0;
}
