package schema

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// The grammar of github.com/distribution/reference, without what no registry has.
var (
	imagePath   = regexp.MustCompile(`^([a-zA-Z0-9.-]+(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	imageTag    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	imageDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// CheckImage says what keeps text from being the image of the agent, and how to mend
// it; both are empty when nothing does. Rules: an image reference as container runtimes
// read it, with a tag or a sha256 digest.
func CheckImage(text string) (summary, hint string) {
	const like = "an image looks like registry.example.org/hawser-agent:v1.2.3"
	name, digest, hasDigest := strings.Cut(text, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		if !imageTag.MatchString(name[at+1:]) {
			return fmt.Sprintf("%q is not the tag of an image", name[at+1:]), like
		}
		name, hasDigest = name[:at], true
	}
	switch {
	case digest != "" && !imageDigest.MatchString(digest):
		return fmt.Sprintf("%q is not a digest", digest), "a digest is sha256: and 64 hexadecimal digits"
	case len(name) > 255 || !imagePath.MatchString(name):
		return fmt.Sprintf("%q is not the name of an image", name), like
	case !hasDigest || strings.HasSuffix(text, "@"):
		return fmt.Sprintf("%q names no version", text), "add a tag or a digest: nodes would run what was newest when each pulled it"
	}
	return "", ""
}

// agent checks how agents run in Kubernetes.
func (c *checker) agent() {
	a := &c.set.Spec.Agent
	if a.Image != "" {
		if summary, hint := CheckImage(a.Image); summary != "" {
			c.fail(diag.Diagnostic{Code: "bad-image", Path: "agent.image", Summary: summary, Hint: hint})
		} else if strings.HasSuffix(a.Image, ":latest") {
			c.warn(diag.Diagnostic{Code: "moving-tag", Path: "agent.image", Summary: "the tag latest moves: nodes run what was newest when each pulled it",
				Hint: "name a version or a digest"})
		}
	}
	seen := uniqueness{}
	for i, name := range a.ImagePullSecrets {
		path := nth("agent.imagePullSecrets", i)
		c.domain(path, name)
		c.unique(seen, name, path, "Secret "+name+" is listed twice")
	}
	c.domain("agent.priorityClassName", a.PriorityClassName)
	for i := range a.Tolerations {
		c.toleration(&a.Tolerations[i], nth("agent.tolerations", i))
	}
	c.quantity("agent.requests.cpu", a.Requests.CPU, cpuQuantity, "500m or \"2\"")
	c.quantity("agent.requests.memory", a.Requests.Memory, memoryQuantity, "512Mi or 1Gi")
	for path, l := range map[string]AgentLimits{"agent.limits": a.Limits, "agent.gatewayLimits": AgentLimits(a.GatewayLimits)} {
		c.quantity(path+".cpu", l.CPU, cpuQuantity, "500m or \"2\"")
		c.quantity(path+".memory", l.Memory, memoryQuantity, "512Mi or 1Gi")
		c.holds(path+".cpu", l.CPU, "agent.requests.cpu", a.Requests.CPU)
		c.holds(path+".memory", l.Memory, "agent.requests.memory", a.Requests.Memory)
	}
}

func (c *checker) toleration(t *Toleration, path string) {
	if t.Key != "" && !fabric.IsQualified(t.Key) {
		c.fail(diag.Diagnostic{Code: "bad-label", Path: path + ".key", Summary: fmt.Sprintf("%q is not the key of a taint", t.Key),
			Hint: "a key is [prefix/]name of at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"})
	}
	if t.Value != "" && !fabric.IsLabelText(t.Value) {
		c.fail(diag.Diagnostic{Code: "bad-label", Path: path + ".value", Summary: fmt.Sprintf("%q is not the value of a taint", t.Value)})
	}
	switch {
	case t.Key == "" && t.Operator == "Equal":
		c.fail(diag.Diagnostic{Code: "required", Path: path + ".key", Summary: "is missing: operator Equal needs it",
			Hint: "name the taint's key, or write operator: Exists for every taint"})
	case t.Value != "" && t.Operator == "Exists":
		c.fail(diag.Diagnostic{Code: "misplaced", Path: path + ".value", Summary: "is used with operator: Equal only"})
	}
}

// What Kubernetes takes as a quantity and people write: no exponents, no fractions of bytes.
var (
	cpuQuantity    = regexp.MustCompile(`^([1-9][0-9]{0,8}m|[1-9][0-9]{0,5}|[0-9]{1,6}\.[0-9]{1,3})$`)
	memoryQuantity = regexp.MustCompile(`^[1-9][0-9]{0,17}(k|M|G|T|Ki|Mi|Gi|Ti)?$`)
)

func (c *checker) quantity(path, text string, form *regexp.Regexp, like string) {
	if text != "" && (!form.MatchString(text) || amount(text).Sign() == 0) {
		c.fail(diag.Diagnostic{Code: "bad-quantity", Path: path, Summary: fmt.Sprintf("%q is not a quantity", text), Hint: "write it as " + like})
	}
}

// holds refuses a limit that is less than what is requested, as Kubernetes does.
func (c *checker) holds(limitPath, limit, requestPath, request string) {
	if have, want := amount(limit), amount(request); have != nil && want != nil && have.Cmp(want) < 0 {
		c.fail(diag.Diagnostic{Code: "limit-below-request", Path: limitPath,
			Summary: fmt.Sprintf("the limit %s is less than the %s that each agent requests", limit, request),
			Hint:    "raise the limit, or lower " + requestPath, Related: related(requestPath)})
	}
}

// amount gives the number that a quantity stands for; nil when it is none.
func amount(text string) *big.Rat {
	if !cpuQuantity.MatchString(text) && !memoryQuantity.MatchString(text) {
		return nil
	}
	units := map[string]*big.Rat{"": big.NewRat(1, 1), "m": big.NewRat(1, 1000)}
	for i, unit := range []string{"k", "M", "G", "T"} {
		units[unit] = new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(1000), big.NewInt(int64(i+1)), nil))
	}
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		units[unit] = new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(1024), big.NewInt(int64(i+1)), nil))
	}
	digits := strings.TrimRight(text, "kmMGTi")
	n, ok := new(big.Rat).SetString(digits)
	if !ok {
		return nil
	}
	return n.Mul(n, units[text[len(digits):]])
}
