#!/usr/bin/env bash
# Runs the tour of the README on this machine: three clusters with the same CIDRs in network
# namespaces, with the real reconciler and one real agent per node.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
PATH=$root/bin:$PATH
HAWSER_LAB_DIR=$(mktemp -d /tmp/hwdemo-XXXXXX)/lab
export PATH HAWSER_LAB_DIR
trap 'hawser lab down >/dev/null 2>&1; rm -rf "${HAWSER_LAB_DIR%/lab}"' EXIT

bold=''; plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m'; plain=$'\e[0m'; fi
say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
run() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; "$@"; }
# Runs a command until its output matches, for 20 seconds at most, and then shows it.
until_seen() {
  local pattern=$1 out shown deadline=$((SECONDS + 20)); shift
  shown=$*
  printf '%s$ %s%s\n' "$bold" "${shown#sh -c }" "$plain"
  while out=$("$@" 2>&1) || true; ! grep -qE "$pattern" <<<"$out"; do
    if [ $SECONDS -ge $deadline ]; then
      printf '%s\nnot seen within 20 s: %s\n' "$out" "$pattern" >&2
      exit 1
    fi
    sleep 0.1
  done
  printf '%s\n' "$out"
}
# Shows the changed lines of the topology, the plan and the commit.
change() {
  cd "$repo"
  printf '%s$ git diff -U0%s\n' "$bold" "$plain"
  git diff -U0 clusterset.yaml | sed -n '/^@@/,$p'
  run hawser diff || [ $? -eq 1 ] # 1 = there are changes
  commit "$1"
  cd "$root"
}
client() { hawser lab exec g1/default/client -- "$@"; }
url=whereami-cs.sample.svc.clusterset.local
commit() {
  printf "%s\$ git commit -am '%s'%s\n" "$bold" "$1" "$plain"
  git -C "$repo" -c user.name=demo -c user.email=demo@example.org commit -qam "$1"
}

say "Three clusters, all with pods 10.7.0.0/16 and services 10.77.0.0/16, come up from one file."
run hawser lab up -f docs/clusterset.full.yaml -w workloads/
repo=$(hawser lab repo)

echo "The file is in git; this is the export of whereami-cs:"
(cd "$repo" && run grep -A 7 whereami-cs clusterset.yaml) || true

say "1. The tunnels."
until_seen 'connected' hawser show connections

say "2. A service of g2, by name, from a pod in g1. The server sees one of g1's egress addresses."
until_seen '^243\.' hawser lab exec g1/default/client -- dig +short $url
until_seen '"g2"' hawser lab exec g1/default/client -- curl -s -m 3 $url
echo "Sixty calls reach these pods:"
for _ in $(seq 60); do client curl -s -m 3 $url; echo; done | grep -oE '"pod": *"[^"]*"' | sort | uniq -c

say "3. Export it from g1 too: the edit, the plan, the commit. The local cluster is preferred."
sed -i '/name: whereami-cs/,/clusters:/ s/clusters: \[g2\]/clusters: [g1, g2]/' "$repo/clusterset.yaml"
change 'export whereami-cs from g1 too'
until_seen '"g1"' hawser lab exec g1/default/client -- curl -s -m 3 $url
echo "The cluster's own name pins it:"
run hawser lab exec g1/default/client -- curl -s -m 3 g2.$url
echo; echo "Spread over both:"
sed -i '/name: whereami-cs/,/policy:/ s/policy: local-first/policy: spread/' "$repo/clusterset.yaml"
change 'spread whereami-cs'
until_seen '"g2"' hawser lab exec g1/default/client -- curl -s -m 3 $url
until_seen '"g1"' hawser lab exec g1/default/client -- curl -s -m 3 $url

say "4. A headless service: one global IP for each ready pod, and a name for each."
until_seen '242\.2\.' hawser lab exec g1/default/client -- dig +short whereami-ss.sample.svc.clusterset.local
run hawser lab exec g1/default/client -- curl -s -m 3 whereami-0.g2.whereami-ss.sample.svc.clusterset.local
run hawser lab scale g2/sample/StatefulSet/whereami 2
until_seen 'Could not resolve' hawser lab exec g1/default/client -- curl -sS -m 3 whereami-2.g2.whereami-ss.sample.svc.clusterset.local

say "5. g3 has mapped egress: its pods keep their host part. g1 shares eight addresses; billing/db has its own."
run hawser lab exec g3/default/client -- ip -4 -br addr show dev eth0
until_seen '"client"' hawser lab exec g3/default/client -- curl -s -m 3 g2.$url
until_seen '"client"' hawser lab exec g1/billing/db -- curl -s -m 3 g2.$url

say "6. A broken commit changes nothing, and says where it is broken."
sed -i '0,/10\.7\.0\.0\/16/ s//10.7.0.1\/16/' "$repo/clusterset.yaml"
(cd "$repo" && run hawser validate clusterset.yaml) || true
commit 'a mistake'
until_seen 'clusterset.yaml:[0-9]+:[0-9]+' sh -c 'hawser lab status | head -7'
until_seen '"g2"' hawser lab exec g1/default/client -- curl -s -m 3 g2.$url
git -C "$repo" -c user.name=demo -c user.email=demo@example.org revert --no-edit HEAD >/dev/null

say "7. The export is removed: the plan, the commit, and the name is gone."
awk '/^  - name: whereami-cs/ {skip=1; next} /^  - / {skip=0} !skip' "$repo/clusterset.yaml" >"$repo/new"
mv "$repo/new" "$repo/clusterset.yaml"
change 'stop exporting whereami-cs'
until_seen 'Could not resolve' hawser lab exec g1/default/client -- curl -sS -m 3 $url

say "8. A flat clusterset: other prefixes, so source addresses are kept."
run hawser lab down
run hawser lab up -f examples/flat/clusterset.yaml -w examples/flat/workloads
repo=$(hawser lab repo)
until_seen 'connected.*yes' hawser show connections
run hawser lab exec c1/default/client -- ip -4 -br addr show dev eth0
until_seen '"client":"10\.8\.' hawser lab exec c1/default/client -- curl -s -m 3 10.99.0.10
until_seen '"client":"10\.8\.' hawser lab exec c1/default/client -- curl -s -m 3 web.shop.svc.clusterset.local

say "c3 has the prefixes of c1. It joins by one commit, which says whom it disrupts."
recipient=$(hawser lab recipient c3)
awk -v r="$recipient" '/^  exports:/ {print "  - name: c3\n    podCIDRs: [10.8.0.0/16]\n    serviceCIDRs: [10.88.0.0/16]\n    recipient: " r \
  "\n    gateways:\n    - {name: a, node: c3-gw, endpoints: [203.0.113.23]}"} {print}' "$repo/clusterset.yaml" >"$repo/new"
mv "$repo/new" "$repo/clusterset.yaml"
change 'c3 joins'
until_seen '"client":"242\.' hawser lab exec c3/default/client -- curl -s -m 3 web.shop.svc.clusterset.local
until_seen '"client":"242\.' hawser lab exec c1/default/client -- curl -s -m 3 web.shop.svc.clusterset.local
run hawser show clusters

say "And away again."
run hawser lab down
echo; echo "demo: done"
