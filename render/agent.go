package render

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/syntax"
)

// ImageName is the default image of the agent, without its tag.
const ImageName = "hawser.dev/hawser-agent"

// invalidTagChar matches the characters that an image tag cannot contain. hack/image.sh replaces
// the same characters.
var invalidTagChar = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// DefaultImage returns the agent image of a first publication with a version of Hawser.
func DefaultImage(version string) string {
	return ImageName + ":" + invalidTagChar.ReplaceAllString(cmp.Or(version, "dev"), "-")
}

// agentImage returns the image of the agents: the topology's image, in.Image, the published image
// or DefaultImage, in this order. So another version of Hawser restarts no agent. It returns an
// error if the topology and in.Image differ, because one of them would have no effect.
func agentImage(in Input) (string, diag.List) {
	topologyImage := in.Topology.Spec.Agent.Image
	if topologyImage != "" && in.Image != "" && topologyImage != in.Image {
		return "", diag.List{{Severity: diag.Error, Code: "image-conflict", Path: "agent.image",
			Summary: fmt.Sprintf("the topology says %s, and --image says %s", topologyImage, in.Image),
			Hint:    "leave out --image: the topology names the image for everybody who renders it"}}
	}
	var list diag.List
	summary, hint := syntax.CheckImage(in.Image)
	if topologyImage == "" && in.Image != "" && summary != "" {
		list = diag.List{{Severity: diag.Warning, Code: "bad-image", Path: "agent.image", Summary: "--image: " + summary, Hint: hint}}
	}
	image := cmp.Or(topologyImage, in.Image, ImageOf(in.Previous), DefaultImage(in.Version))
	if agentVersion := Tag(image); VersionLess(in.Version, agentVersion) {
		list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "hawser-older", Path: "agent.image",
			Summary: fmt.Sprintf("the agents are %s, and this is Hawser %s, which may not know all that they read", agentVersion, in.Version),
			Hint:    "use hawser " + agentVersion + " or a newer one (docs/upgrade.md)"})
	}
	return image, list
}

// Tag returns the tag of an image; empty if absent.
func Tag(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		return name[colon+1:]
	}
	return ""
}

// describeSuffix matches the suffix of git describe for a commit after the newest tag.
var describeSuffix = regexp.MustCompile(`-\d+-g[0-9a-f]+([-+]dirty)?$`)

// VersionLess reports whether version precedes other in semver order. It returns false if one of
// the texts is not a version.
func VersionLess(version, other string) bool {
	version = describeSuffix.ReplaceAllString(version, "")
	other = describeSuffix.ReplaceAllString(other, "")
	return semver.IsValid(version) && semver.IsValid(other) && semver.Compare(version, other) < 0
}

// quantity returns a resource quantity as a YAML scalar that every parser reads as text.
func quantity(text string) string {
	if last := text[len(text)-1]; last >= '0' && last <= '9' {
		return strconv.Quote(text)
	}
	return text
}

// ImageOf returns the agent image of a rendered tree before patches. It returns "" if absent.
func ImageOf(tree Tree) string {
	for _, file := range []string{GatewayFile, AgentFile} {
		var d struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Name, Image string }
					}
				}
			}
		}
		if tree[file] == nil || yaml.Unmarshal(tree[file], &d) != nil {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Name == "agent" && c.Image != "" {
				return c.Image
			}
		}
	}
	return ""
}
