#include <stdio.h>
#include <string.h>
#include "rle.h"

static int run, passed;

static void check(const char *what, int holds)
{
    run++;
    passed += holds != 0;
    if (!holds)
        printf("FAIL: %s\n", what);
}

int main(void)
{
    unsigned char out[1024], back[1024], text[600];
    size_t n = rle_encode((const unsigned char *)"aaab", 4, out);
    check("aaab is 3a1b", n == 4 && !memcmp(out, "\3a\1b", 4));
    check("nothing is nothing", rle_encode(text, 0, out) == 0 && rle_decode(out, 0, back, sizeof back) == 0);
    memset(text, 'x', sizeof text);
    n = rle_encode(text, sizeof text, out);
    check("a long run comes back", rle_decode(out, n, back, sizeof back) == sizeof text && !memcmp(back, text, sizeof text));
    check("half a pair is refused", rle_decode((const unsigned char *)"\3a\1", 3, back, sizeof back) == (size_t)-1);
    check("what does not fit is refused", rle_decode((const unsigned char *)"\377a", 2, back, 100) == (size_t)-1);
    printf("%d of %d tests pass\n", passed, run);
    return passed != run;
}
