package metricdoc_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/metricdoc"
)

// documentedLabels returns the documented labels of each metric, by each name under which
// Prometheus stores it.
func documentedLabels(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for section, targetLabels := range map[string][]string{"Agents": {"cluster", "node"}, "The reconciler": nil} {
		list, err := metricdoc.Read(document, section)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			labels := slices.Concat(m.Labels, targetLabels)
			if m.Type != "histogram" {
				out[m.Name] = labels
				continue
			}
			out[m.Name+"_bucket"] = append(slices.Clone(labels), "le")
			out[m.Name+"_sum"], out[m.Name+"_count"] = labels, labels
		}
	}
	return out
}

// collectQueries adds the queries of a dashboard to queries, with their legends.
func collectQueries(node any, queries map[string][]string) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			collectQueries(item, queries)
		}
	case map[string]any:
		for _, key := range []string{"expr", "query", "definition"} {
			if expr, is := n[key].(string); is && strings.Contains(expr, "hawser_") {
				legend, _ := n["legendFormat"].(string)
				queries[expr] = append(queries[expr], legend)
			}
		}
		for _, item := range n {
			collectQueries(item, queries)
		}
	}
}

var (
	metricName     = regexp.MustCompile(`\bhawser_[a-z_]+`)
	selector       = regexp.MustCompile(`\b(hawser_[a-z_]+)\{([^}]*)\}`)
	matcher        = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping       = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([a-z_, ]*)\)`)
	variable       = regexp.MustCompile(`label_values\(hawser_[a-z_]+, ([a-z_]+)\)`)
	labelReference = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([a-z_]+) ?\}\}`)
)

// unknownNames returns words of an expression, and of texts about its results, that look like
// metrics or labels and do not exist. It parses only the PromQL that the rules use.
func unknownNames(known map[string][]string, expr string, texts []string) []string {
	var out, labels []string
	for _, name := range metricName.FindAllString(expr, -1) {
		metricLabels, is := known[name]
		if !is {
			out = append(out, "there is no metric "+name)
		}
		labels = append(labels, metricLabels...)
	}
	for _, found := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			if metricLabels, is := known[found[1]]; is && !slices.Contains(metricLabels, m[1]) {
				out = append(out, fmt.Sprintf("%s has no label %s", found[1], m[1]))
			}
		}
	}
	var used []string
	for _, pattern := range []*regexp.Regexp{grouping, variable} {
		for _, found := range pattern.FindAllStringSubmatch(expr, -1) {
			used = append(used, strings.FieldsFunc(found[1], func(r rune) bool { return r == ',' || r == ' ' })...)
		}
	}
	for _, text := range texts {
		for _, found := range labelReference.FindAllStringSubmatch(text, -1) {
			used = append(used, found[1])
		}
	}
	for _, label := range used {
		if !slices.Contains(labels, label) {
			out = append(out, "no metric of it has a label "+label)
		}
	}
	return out
}
