#!/bin/sh
# Writes the Python modules of the .proto files beside this script. Run it from anywhere, after a change of them.
# The check of the protobuf version that protoc writes into every module is taken out: the descriptors use nothing
# newer than proto2, and we promise to work with the oldest protobuf named in pyproject.toml.
set -eu
cd "$(dirname "$0")/../../.."
PYTHON="${PYTHON:-.venv/bin/python}"
"$PYTHON" -m grpc_tools.protoc -I . --python_out=. --pyi_out=. ledger/wire/proto/bookkeeper.proto ledger/wire/proto/data_formats.proto
for module in ledger/wire/proto/bookkeeper_pb2.py ledger/wire/proto/data_formats_pb2.py; do
  "$PYTHON" - "$module" <<'PY'
import re
import sys

path = sys.argv[1]
with open(path) as file:
    text = file.read()
text = text.replace("from google.protobuf import runtime_version as _runtime_version\n", "")
text = re.sub(r"_runtime_version\.ValidateProtobufRuntimeVersion\((?:.|\n)*?\n\)\n", "", text)
with open(path, "w") as file:
    file.write(text)
PY
done
# mypy --strict wants the arguments of a generic type, which protoc leaves out.
sed -i 's/, _Mapping\]/, _Mapping[str, object]]/g' ledger/wire/proto/*_pb2.pyi
