# SED...: changes the topology, until every agent has the commit and every link carries.
set -e
for edit; do sed -i "$edit" $REPO/clusterset.yaml; done
sh publish.sh
sh await.sh 60 sh applied.sh
