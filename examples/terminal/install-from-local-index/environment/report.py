"""Prints the stock as a table."""

import inkwell

STOCK = {"caliper": 31, "abacus": 12, "bellows": 7}

if __name__ == "__main__":
    print(inkwell.table(STOCK))
