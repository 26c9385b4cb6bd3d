#!/bin/sh
cp /solution/recurring.py /solution/intervals.py /app/schedule/
