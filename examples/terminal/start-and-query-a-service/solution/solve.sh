#!/bin/sh
set -e
cd /app
cat > settings.json <<END
{"address": "127.0.0.1", "stock": "/app/stock.json", "page_size": 10}
END
cat > start.sh <<'END'
#!/bin/sh
python3 /app/stock.py > /tmp/stock.log 2>&1 &
for _ in $(seq 100); do
    if python3 /app/ask.py health > /dev/null 2>&1; then exit 0; fi
    sleep 0.1
done
cat /tmp/stock.log
exit 1
END
cp /solution/ask.py ask.py
sh start.sh
python3 ask.py answers > answers.json
