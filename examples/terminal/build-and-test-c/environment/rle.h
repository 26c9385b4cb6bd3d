/* Run-length encoding: pairs of a count (1 to 255) and a byte. */
#ifndef RLE_H
#define RLE_H

#include <stddef.h>

/* Encodes n bytes of in; out has room for 2 * n. Returns the bytes written. */
size_t rle_encode(const unsigned char *in, size_t n, unsigned char *out);

/* Decodes n bytes of in into out, which has room for most bytes.
   Returns the bytes written, or (size_t)-1 when in is not whole pairs, has a count of 0, or does not fit. */
size_t rle_decode(const unsigned char *in, size_t n, unsigned char *out, size_t most);

#endif
