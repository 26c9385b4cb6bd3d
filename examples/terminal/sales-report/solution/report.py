"""orders.csv → report.json"""

import csv
import json
from collections import Counter
from pathlib import Path

orders = {row["order"]: row for row in csv.DictReader(Path("/app/orders.csv").open())}
paid = [row for row in orders.values() if row["status"] == "paid"]
regions, months, pieces = Counter(), Counter(), Counter()
for row in paid:
    cents = int(row["quantity"]) * round(float(row["price"]) * 100)
    month = "-".join(row["date"].split("/")[:0:-1]) or row["date"][:7]
    regions[row["region"].strip().lower()] += cents
    months[month] += cents
    pieces[row["product"]] += int(row["quantity"])
report = {
    "orders": len(paid),
    "revenue": sum(regions.values()) / 100,
    "by_region": {name: cents / 100 for name, cents in regions.items()},
    "by_month": {name: cents / 100 for name, cents in months.items()},
    "best_seller": pieces.most_common(1)[0][0],
}
Path("/app/report.json").write_text(json.dumps(report, indent=2))
