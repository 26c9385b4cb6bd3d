#include "rle.h"

size_t rle_encode(const unsigned char *in, size_t n, unsigned char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n;) {
        size_t run = 1;
        while (run < 255 && i + run < n && in[i + run] == in[i])
            run++;
        out[written++] = (unsigned char)run;
        out[written++] = in[i];
        i += run;
    }
    return written;
}

size_t rle_decode(const unsigned char *in, size_t n, unsigned char *out, size_t most)
{
    size_t written = 0;
    if (n % 2)
        return (size_t)-1;
    for (size_t i = 0; i < n; i += 2) {
        if (in[i] == 0 || most - written < in[i])
            return (size_t)-1;
        for (unsigned k = 0; k < in[i]; k++)
            out[written++] = in[i + 1];
    }
    return written;
}
