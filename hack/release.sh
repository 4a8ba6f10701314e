#!/usr/bin/env bash
# Creates a release of this tree in a directory: hack/release.sh v0.2.0 dist/v0.2.0. The same
# commit, Go and Debian packages produce the same bytes, including signatures with the same key. It
# only needs the Go module proxy. docs/install.md describes the files in the directory and how to
# verify them.
#
#   SIGN       cosign key file with the password COSIGN_PASSWORD; by default the script creates
#              a key next to the directory, which no user trusts
#   REGISTRY   future registry of the images, by default hawser.dev
#   URL        future address of the archives, for the krew manifest
#   IPSEC      0 omits the image with strongSwan, which contains this machine's packages
#   PLATFORMS  a subset of the platforms, for tests: linux/amd64
set -euo pipefail
version=${1:?usage: hack/release.sh VERSION DIRECTORY}
mkdir -p "${2:?usage: hack/release.sh VERSION DIRECTORY}"
dist=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
if ! [[ $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]]; then
  echo "release: VERSION=$version: it is vMAJOR.MINOR.PATCH, such as v0.2.0" >&2
  exit 2
fi
plain=${version#v}
# A prerelease, such as v0.2.0-rc.1, uses the section "Unreleased".
if [[ $version != *-* ]] && ! grep -qE "^## ${version//./\\.} - [0-9]{4}-[0-9]{2}-[0-9]{2}\$" CHANGELOG.md; then
  echo "release: CHANGELOG.md has no section \"## $version - $(date +%Y-%m-%d)\": say there what is new" >&2
  exit 2
fi
registry=${REGISTRY:-hawser.dev}
url=${URL:-https://hawser.dev/releases/$version}
commit=$(git rev-parse HEAD)
tree() { git rev-parse HEAD && git diff HEAD | sha256sum; }
begun=$(tree)
# Times in archives are the time of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC CGO_ENABLED=0
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -z "$(ls -A "$dist")" ] || { echo "release: $dist is not empty" >&2; exit 2; }
say() { echo "release: $*" >&2; }

# pack ARCHIVE DIRECTORY packs a directory reproducibly.
pack() {
  tar --create --directory "$2" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
    --mode=u+rw,go+r,go-w --mtime="@$SOURCE_DATE_EPOCH" $(cd "$2" && ls -A) | gzip -n >"$1"
}

go_build() { go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version" "$@"; }
# With -trimpath the programs below reuse the compiled packages.
(cd hack/release && go build -trimpath -o "$work/release" .)
go build -trimpath -o "$work/image" ./hack/image

platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
arches=$(printf '%s\n' $platforms | sed -n 's#^linux/##p' | paste -sd,)
[ -n "$arches" ] || { echo "release: PLATFORMS=$PLATFORMS: nothing for Linux" >&2; exit 2; }

say "programs"
for platform in $platforms; do
  os=${platform%/*} arch=${platform#*/}
  GOOS=$os GOARCH=$arch go_build -o "$work/hawser-$os-$arch/hawser" ./cmd/hawser
  [ "$os" = darwin ] || GOOS=$os GOARCH=$arch go_build -o "$work/hawser-agent-$os-$arch/hawser-agent" ./cmd/hawser-agent
done
# Manual and completion are the same on each platform, so they come from this machine's build.
for program in hawser hawser-agent; do
  host=$work/$program-$(go env GOHOSTOS)-$(go env GOHOSTARCH)/$program
  [ -e "$host" ] || { host=$work/host/$program && go_build -o "$host" "./cmd/$program"; }
  mkdir -p "$work/doc-$program/completion" "$work/doc-$program/man/man1"
  "$host" man "$work/doc-$program/man/man1"
  gzip -n "$work/doc-$program/man/man1"/*
  "$host" completion bash >"$work/doc-$program/completion/$program.bash"
  "$host" completion zsh >"$work/doc-$program/completion/_$program"
  "$host" completion fish >"$work/doc-$program/completion/$program.fish"
  cp LICENSE CHANGELOG.md "$work/doc-$program/"
done
# All targets of messages and links in these documents (TestArchiveLinks).
cp -r README.md CONTRIBUTING.md clusterset.example.yaml docs examples "$work/doc-hawser/"
mkdir "$work/doc-hawser/e2e" && cp e2e/README.md "$work/doc-hawser/e2e/"
# kubectl runs this program to complete kubectl hawser.
printf '#!/bin/sh\nexec kubectl-hawser __complete "$@"\n' >"$work/doc-hawser/completion/kubectl_complete-hawser"
chmod 755 "$work/doc-hawser/completion/kubectl_complete-hawser"
for directory in "$work"/hawser-{linux,darwin,agent-linux}-*; do
  [ -d "$directory" ] || continue # a platform that was not requested
  name=${directory##*/}
  program=$(ls "$directory")
  platform=${name#"$program-"}
  cp -r "$work/doc-$program/." "$directory/"
  find "$directory" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
  pack "$dist/${program}_${version}_${platform/-/_}.tar.gz" "$directory"
done

say "packages of Debian"
# The package's changelog names the version; the sections of CHANGELOG.md are next to it.
for program in hawser hawser-agent; do
  printf '%s (%s) stable; urgency=medium\n\n  * Release %s: see CHANGELOG.md.\n\n -- Hawser <hello@hawser.dev>  %s\n' \
    "$program" "$plain" "$version" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$work/$program.changelog.gz"
done
for program in hawser hawser-agent; do
  for arch in ${arches//,/ }; do
    STAGE=$work/$program-linux-$arch CHANGES=$work/$program.changelog.gz ARCH=$arch VERSION=$plain MTIME=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ) \
      "$work/release" deb "deploy/deb/$program.yaml" "$dist/${program}_${plain}_$arch.deb"
  done
done

say "images"
# image NAME ARCHES ARGUMENT...
image() {
  local name=$1 arches=$2
  shift 2
  digest=$("$work/image" -o "$dist/${name}_$version.oci.tar" -sbom "$dist/${name}_$version.spdx.json" -index -arch "$arches" \
    -name "$registry/$name:$version" -label "org.opencontainers.image.title=$name" -label "org.opencontainers.image.version=$version" \
    -label org.opencontainers.image.licenses=Apache-2.0 -label "org.opencontainers.image.revision=$commit" "$@")
  echo "$registry/$name:$version@$digest" >>"$dist/images.txt"
}
"$work/release" roots "$work/roots.pem"
image hawser "$arches" -entrypoint /hawser "hawser=$work/hawser-linux-{arch}/hawser" "etc/ssl/certs/ca-certificates.crt=$work/roots.pem"
image hawser-agent "$arches" -entrypoint /hawser-agent "hawser-agent=$work/hawser-agent-linux-{arch}/hawser-agent"
if [ "${IPSEC:-1}" != 0 ]; then
  image hawser-agent-ipsec "$(go env GOHOSTARCH)" -charon -pin "deploy/ipsec.$(go env GOHOSTARCH).packages" \
    -entrypoint /hawser-agent "hawser-agent=$work/hawser-agent-linux-{arch}/hawser-agent"
fi

say "charts, kustomize, krew"
for chart in hawser-reconciler hawser-cluster; do
  mkdir -p "$work/$chart"
  cp -r "deploy/charts/$chart" "$work/$chart/"
  sed -i "s/^version: .*/version: $plain/; s/^appVersion: .*/appVersion: $version/" "$work/$chart/$chart/Chart.yaml"
  sed -i "s#^registry: .*#registry: $registry#" "$work/$chart/$chart/values.yaml"
  pack "$dist/$chart-$plain.tgz" "$work/$chart"
done
mkdir "$work/kustomize"
cp -r deploy/kustomize/. "$work/kustomize/"
rm "$work/kustomize/reconciler/render.sh"
sed -i "s#{name: hawser.dev/hawser, newTag: dev}#{name: hawser.dev/hawser, newName: $registry/hawser, newTag: $version}#" \
  "$work/kustomize/reconciler/kustomization.yaml"
pack "$dist/hawser-kustomize_$version.tar.gz" "$work/kustomize"
{
  sed "s/\$VERSION/$version/" deploy/krew.yaml
  for platform in ${platforms//\//_}; do
    archive=hawser_${version}_$platform.tar.gz
    printf '  - selector: {matchLabels: {os: %s, arch: %s}}\n    bin: hawser\n    uri: %s\n    sha256: %s\n' \
      "${platform%_*}" "${platform#*_}" "$url/$archive" "$(sha256sum <"$dist/$archive" | cut -d' ' -f1)"
  done
} >"$dist/hawser.krew.yaml"

say "checksums and signature"
key=${SIGN:-}
if [ -z "$key" ]; then
  key=${dist%/*}/cosign.key
  [ -e "$key" ] || "$work/release" key "${key%.key}"
  say "signed with ${key}, a key of this machine: SIGN=FILE takes yours"
fi
# The public key is in the directory so that users can compare it with theirs.
cp "${key%.key}.pub" "$dist/cosign.pub"
[ "$(tree)" = "$begun" ] || { echo "release: the tree changed meanwhile: no commit gives these files" >&2; exit 1; }
git diff --quiet HEAD || say "changes that are not committed are in it: $commit does not give these files"
(cd "$dist" && sha256sum $(ls | grep -v '^cosign.pub$') >SHA256SUMS && "$work/release" sign "$key" SHA256SUMS)
# For sites without network access: all files in one archive.
tar --create --directory "$dist" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  --file "$work/all.tar" $(ls "$dist")
mv "$work/all.tar" "$dist/hawser_${version}_airgap.tar"
"$work/release" sign "$key" "$dist/hawser_${version}_airgap.tar"
say "$dist: $(ls "$dist" | wc -l) files, $(du -sh "$dist" | cut -f1)"
