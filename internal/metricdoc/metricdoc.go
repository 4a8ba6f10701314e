// Package metricdoc compares the metrics that programs expose with the document that
// lists them. It is for tests.
package metricdoc

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is one metric, as a program exposes it or as a document lists it.
type Metric struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
}

// Read returns the metrics that a section of a document lists, sorted by name. It reads the table
// rows of the form | `name` | type | `label`, `label` | ... |. section is the text of a
// second-level heading; empty means the whole document.
func Read(file, section string) ([]Metric, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read list of metrics: %w", err)
	}
	row := regexp.MustCompile("^\\| `([a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|")
	var out []Metric
	heading := ""
	for line := range strings.Lines(string(raw)) {
		if text, is := strings.CutPrefix(line, "## "); is {
			heading = strings.TrimSpace(text)
		}
		found := row.FindStringSubmatch(line)
		if found == nil || section != "" && heading != section {
			continue
		}
		m := Metric{Name: found[1], Type: found[2], Labels: []string{}}
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(found[3], -1) {
			m.Labels = append(m.Labels, label[1])
		}
		slices.Sort(m.Labels)
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: section %q lists no metrics", file, section)
	}
	slices.SortFunc(out, byName)
	return out, nil
}

// Exposed returns the metrics of a registry sorted by name, without the given labels and without
// the metrics of libraries. A metric without a value is an error, because its type and labels are
// then unknown. Tests must therefore set every metric.
func Exposed(registry *prometheus.Registry, ignoredLabels ...string) ([]Metric, error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	var out []Metric
	for _, f := range families {
		if foreign(f.GetName()) {
			continue
		}
		m := Metric{Name: f.GetName(), Type: strings.ToLower(f.GetType().String()), Labels: []string{}}
		for _, l := range f.GetMetric()[0].GetLabel() {
			if !slices.Contains(ignoredLabels, l.GetName()) {
				m.Labels = append(m.Labels, l.GetName())
			}
		}
		slices.Sort(m.Labels)
		out = append(out, m)
	}
	slices.SortFunc(out, byName)
	for _, name := range described(registry) {
		if !slices.ContainsFunc(out, func(m Metric) bool { return m.Name == name }) {
			return nil, fmt.Errorf("%s has no value", name)
		}
	}
	return out, nil
}

// described returns the names of all Hawser metrics of a registry, including metrics without a
// value.
func described(registry *prometheus.Registry) []string {
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	var out []string
	for d := range descs {
		if found := name.FindStringSubmatch(d.String()); found != nil && !foreign(found[1]) {
			out = append(out, found[1])
		}
	}
	return out
}

// foreign reports whether a metric is from a library.
func foreign(name string) bool { return !strings.HasPrefix(name, "hawser_") }

func byName(a, b Metric) int { return strings.Compare(a.Name, b.Name) }
