#!/bin/sh
# Writes the Python modules of all .proto files, each beside its file. Run it from anywhere, after a change of them:
#     PYTHON=/path/to/a/python/with/grpcio-tools-1.64 tools/generate_protos.sh
# That version writes code for protobuf 5.26, the oldest that pyproject.toml names; code of a newer one needs a newer
# protobuf. The check of the version that some write into every module is taken out.
set -eu
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-.venv/bin/python}"
for proto in $(git ls-files '*.proto'); do
  "$PYTHON" -m grpc_tools.protoc -I . --python_out=. --pyi_out=. "$proto"
  module="${proto%.proto}_pb2"
  "$PYTHON" - "$module.py" <<'PY'
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
  # mypy --strict wants the arguments of a generic type, which protoc leaves out.
  sed -i 's/, _Mapping\]/, _Mapping[str, object]]/g' "$module.pyi"
done
