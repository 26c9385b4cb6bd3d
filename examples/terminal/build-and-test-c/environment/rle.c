#include "rle.h"

size_t rle_encode(const unsigned char *in, size_t n, unsigned char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n;) {
        unsigned char run = 1;
        while (i + run < n && in[i + run] == in[i])
            run++;
        out[written++] = run;
        out[written++] = in[i];
        i += run;
    }
    return written;
}

size_t rle_decode(const unsigned char *in, size_t n, unsigned char *out, size_t most)
{
    size_t written = 0;
    for (size_t i = 0; i <= n; i += 2) {
        for (char k = 0; k < in[i]; k++) {
            if (written == most)
                return (size_t)-1;
            out[written++] = in[i + 1];
        }
    }
    return written;
}
