package syntax

import (
	"fmt"
	"regexp"
	"strings"
)

// The grammar of github.com/distribution/reference, restricted to the forms that registries
// use.
var (
	imagePath   = regexp.MustCompile(`^([a-zA-Z0-9.-]+(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	imageTag    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	imageDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// CheckImage returns the problem of an image reference and a hint to fix it; both are
// empty if it is valid. A valid reference has a tag or a sha256 digest.
func CheckImage(text string) (summary, hint string) {
	const example = "an image looks like registry.example.org/hawser-agent:v1.2.3"
	name, digest, hasDigest := strings.Cut(text, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		if !imageTag.MatchString(name[colon+1:]) {
			return fmt.Sprintf("%q is not the tag of an image", name[colon+1:]), example
		}
		name, hasDigest = name[:colon], true
	}
	switch {
	case digest != "" && !imageDigest.MatchString(digest):
		return fmt.Sprintf("%q is not a digest", digest), "a digest is sha256: and 64 hexadecimal digits"
	case len(name) > 255 || !imagePath.MatchString(name):
		return fmt.Sprintf("%q is not the name of an image", name), example
	case !hasDigest || strings.HasSuffix(text, "@"):
		return fmt.Sprintf("%q names no version", text), "add a tag or a digest: each node would run the version that was newest when it pulled the image"
	}
	return "", ""
}
