#!/usr/bin/env bash
# Builds dist/rsm-spark_VERSION_ARCHITECTURE.deb of this checkout, on the release of Debian that it is for: 12 (bookworm).
# It holds an environment of Python with the packages of containers/servers.lock by hash, the wheel, ZooKeeper's JARs by
# hash, the unit of a machine, and the documents: docs/decisions/0082-a-deb-holds-a-whole-environment.md says why.
#
#   RSM_CACHE_DIR   where uv is (default ${XDG_CACHE_HOME:-~/.cache}/rsm-spark)
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

PYTHON=/usr/bin/python3.11
CACHE="${RSM_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rsm-spark}"
UV="$CACHE/uv-$(sha256sum tools/uv.lock | cut -c 1-12)/bin/uv"

fail() { printf 'deb: %s\n' "$1" >&2; exit 1; }

[[ -x $PYTHON ]] || fail "no $PYTHON: build it on Debian 12, with python3.11 installed"
command -v dpkg-deb >/dev/null || fail "no dpkg-deb: build it on Debian 12"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root="$scratch/root"
home="$root/opt/rsm-spark"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
architecture=$(dpkg --print-architecture)

# The environment: relocatable, so that its commands find it at /opt/rsm-spark. Copied: uv's cache is linked to by others.
"$UV" venv --quiet --no-project --relocatable --python "$PYTHON" "$home"
export VIRTUAL_ENV="$home" UV_LINK_MODE=copy
"$UV" pip sync --quiet --require-hashes --offline containers/servers.lock 2>/dev/null \
  || "$UV" pip sync --quiet --require-hashes containers/servers.lock
.venv/bin/python -m hatchling build --target wheel --directory "$scratch" >/dev/null
"$UV" pip install --quiet --no-deps --offline "$scratch"/*.whl
# Where the wheel lay while this was built is nobody's business.
rm "$home"/lib/python3.11/site-packages/rsm_spark-*.dist-info/direct_url.json
sed -i /direct_url.json/d "$home"/lib/python3.11/site-packages/rsm_spark-*.dist-info/RECORD
"$home/bin/rsm" zookeeper jars --from .venv/lib/python3.11/site-packages/pyspark/jars >/dev/null
rm -f "$home"/bin/activate* "$home/bin/deactivate.bat" "$home/bin/pydoc.bat" "$home/.gitignore" "$home/.lock" "$home/CACHEDIR.TAG"
# The first three lines of a relocatable command are a shell that looks where it lies: these are moved no more.
grep -lIZ "^'''exec' " "$home"/bin/* | xargs -0 sed -i -e '2,3d; 1s|.*|#!/opt/rsm-spark/bin/python3.11|'
find "$home" -name __pycache__ -type d -prune -exec rm -rf {} +
"$home/bin/python" -m compileall -q -j 0 -s "$root" -p / "$home/lib"

doc="$root/usr/share/doc/rsm-spark"
install -d "$doc/examples" "$root/usr/bin" "$root/lib/systemd/system" "$root/DEBIAN"
ln -s /opt/rsm-spark/bin/rsm "$root/usr/bin/rsm"
"$home/bin/python" - >"$root/lib/systemd/system/rsm-node.service" <<'PYTHON'
from rsm_spark.deploy.plan import ClusterPlan
from rsm_spark.deploy.unit import unit_file

print(unit_file(ClusterPlan(machine=())), end="")
PYTHON
cp README.md docs/*.md packaging/deb/copyright "$doc"
gzip -9n <CHANGELOG.md >"$doc/CHANGELOG.md.gz"
date=$(git log -1 --format=%cD 2>/dev/null || date -R)
sed -e "s/@VERSION@/$version/; s/@DATE@/$date/" packaging/deb/changelog | gzip -9n >"$doc/changelog.gz"
cp -r examples/systemd "$doc/examples"
install -d "$root/usr/share/man/man1" "$root/usr/share/lintian/overrides"
gzip -9n <packaging/deb/rsm.1 >"$root/usr/share/man/man1/rsm.1.gz"
cp packaging/deb/lintian-overrides "$root/usr/share/lintian/overrides/rsm-spark"

chmod -R u=rwX,go=rX "$root"
# Some wheels have modules and libraries that are executable; programs are those of one of them alone.
find "$home"/lib/*/site-packages -type f -perm /111 -not -path '*/apsw/sqlite_extra_binaries/sqlite3_*' -exec chmod a-x {} +
cp packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$root/DEBIAN"
(cd "$root" && find opt usr lib -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
size=$(du -sk --exclude=DEBIAN "$root" | cut -f 1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" packaging/deb/control >"$root/DEBIAN/control"

install -d dist
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "dist/rsm-spark_${version}_$architecture.deb" >/dev/null
echo "dist/rsm-spark_${version}_$architecture.deb"
