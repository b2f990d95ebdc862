"""A script in the place of a warm server of Spark: it speaks as one, and notes its process in the file $PIDS."""

from __future__ import annotations

SPOKEN = """
import json, os, sys
def tell(**told):
    print(json.dumps(told), flush=True)
with open(os.environ["PIDS"], "a") as pids:
    pids.write(f"{os.getpid()}\\n")
print("starts", file=sys.stderr, flush=True)
tell(application_id="local-1", ui="http://host:4711")
for line in sys.stdin:
    asked = json.loads(line)
    print("no line of mine", flush=True)
    if asked.get("conf", {}).get("spark.bad"):
        tell(number=asked["number"], error="spark.bad is static")
    elif "open" in asked:
        session = f"{os.getpid()}-{asked['open'][1]}"
        tell(number=asked["number"], remote="sc://localhost:1", token="t", session_id=session, jobs="tag")
    else:
        tell(number=asked["number"])
"""
