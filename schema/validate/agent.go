package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/syntax"
)

// agent checks how agents run in Kubernetes.
func (c *checker) agent() {
	a := &c.set.Spec.Agent
	c.image("agent.image", a.Image)
	seen := uniqueness{}
	for i, name := range a.ImagePullSecrets {
		path := fieldpath.Index("agent.imagePullSecrets", i)
		c.domain(path, name)
		c.unique(seen, name, path, "Secret "+name+" is listed twice")
	}
	c.domain("agent.priorityClassName", a.PriorityClassName)
	for i := range a.Tolerations {
		c.toleration(&a.Tolerations[i], fieldpath.Index("agent.tolerations", i))
	}
	// PreferNoSchedule does not prevent scheduling.
	everywhere := func(effect string) bool {
		return slices.ContainsFunc(a.Tolerations, func(t schema.Toleration) bool {
			return t.Key == "" && t.Operator == "Exists" && (t.Effect == "" || t.Effect == effect)
		})
	}
	if len(a.Tolerations) > 0 && !(everywhere("NoSchedule") && everywhere("NoExecute")) {
		c.Warn("nodes-without-agent", "agent.tolerations",
			"nodes with other taints get no agent: their pods reach no other cluster, and no VXLAN is accepted from them",
			"leave agent.tolerations out, or add {operator: Exists}")
	}
	c.quantity("agent.requests.cpu", a.Requests.CPU, syntax.CPU, "500m or \"2\"")
	c.quantity("agent.requests.memory", a.Requests.Memory, syntax.Memory, "512Mi or 1Gi")
	for path, l := range map[string]schema.AgentLimits{"agent.limits": a.Limits, "agent.gatewayLimits": schema.AgentLimits(a.GatewayLimits)} {
		c.quantity(path+".cpu", l.CPU, syntax.CPU, "500m or \"2\"")
		c.quantity(path+".memory", l.Memory, syntax.Memory, "512Mi or 1Gi")
		c.limitAtLeastRequest(path+".cpu", l.CPU, "agent.requests.cpu", a.Requests.CPU)
		c.limitAtLeastRequest(path+".memory", l.Memory, "agent.requests.memory", a.Requests.Memory)
	}
}

// image checks the name of an image; empty is the default.
func (c *checker) image(path, text string) {
	if text == "" {
		return
	}
	if summary, hint := syntax.CheckImage(text); summary != "" {
		c.Fail("bad-image", path, summary, hint)
	} else if strings.HasSuffix(text, ":latest") {
		c.Warn("moving-tag", path, "the tag latest moves: each node runs the version that was latest when it pulled the image",
			"name a version or a digest")
	}
}

func (c *checker) toleration(t *schema.Toleration, path string) {
	if t.Key != "" && !fabric.IsQualified(t.Key) {
		c.Fail("bad-label", path+".key", fmt.Sprintf("%q is not the key of a taint", t.Key),
			"a key is [prefix/]name of at most 63 letters, digits, -, _ and ., with a letter or digit at both ends")
	}
	if t.Value != "" && !fabric.IsLabelText(t.Value) {
		c.Fail("bad-label", path+".value", fmt.Sprintf("%q is not the value of a taint", t.Value), "")
	}
	switch {
	case t.Key == "" && t.Operator == "Equal":
		c.Fail("required", path+".key", "is missing: operator Equal needs it",
			"name the taint's key, or write operator: Exists for every taint")
	case t.Value != "" && t.Operator == "Exists":
		c.Fail("misplaced", path+".value", "is used with operator: Equal only", "")
	}
}

func (c *checker) quantity(path, text string, form *regexp.Regexp, like string) {
	if text != "" && (!form.MatchString(text) || syntax.Amount(text).Sign() == 0) {
		c.Fail("bad-quantity", path, fmt.Sprintf("%q is not a quantity", text), "write it as "+like)
	}
}

// limitAtLeastRequest rejects a limit below the request, like Kubernetes.
func (c *checker) limitAtLeastRequest(limitPath, limit, requestPath, request string) {
	if have, want := syntax.Amount(limit), syntax.Amount(request); have != nil && want != nil && have.Cmp(want) < 0 {
		c.Fail("limit-below-request", limitPath,
			fmt.Sprintf("the limit %s is less than the %s that each agent requests", limit, request),
			"raise the limit, or lower "+requestPath, requestPath)
	}
}
