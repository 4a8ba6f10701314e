package status_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
)

// TestCodes checks that codes are unique and that Codes has each constant. It checks that
// docs/findings.md has each code with its severity.
func TestCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, code := range status.Codes() {
		if slices.Contains(names, code.Name) {
			t.Errorf("two entries for %s", code.Name)
		}
		names = append(names, code.Name)
		if (code.Condition == "") != (code.Reason == "") || code.Severity != status.Info && code.Next == "" {
			t.Errorf("incomplete: %+v", code)
		}
		if strings.Contains(code.Next, "hawser status") { // which prints Next, and may be waiting
			t.Errorf("%s leads back to hawser status: %s", code.Name, code.Next)
		}
		if row := fmt.Sprintf("| `%s` | %s |", code.Name, code.Severity); !strings.Contains(string(page), row) {
			t.Errorf("docs/findings.md lacks %q", row)
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^\t\w+ += "([a-z0-9-]+)" // `).FindAllSubmatch(source, -1) {
		if !slices.Contains(names, string(match[1])) {
			t.Errorf("Codes lacks %s", match[1])
		}
	}
}

// TestSummarize checks that a HawserNode has one bounded problem per code, errors first.
func TestSummarize(t *testing.T) {
	t.Parallel()
	c := status.NewCatalog()
	problems := []status.Problem{
		c.New("c1", "n1", status.QuotaUnsupported, "", "no quota"),
		c.New("c1", "n1", status.ServiceMissing, "exports[a/a]", "no a"),
		c.New("c1", "n1", status.ConntrackFull, "", "full"),
		c.New("c1", "n1", status.ServiceMissing, "exports[a/b]", "no b"),
		c.New("c1", "n1", status.ServiceMissing, "exports[a/b]", "no b"),
		c.New("c1", "n1", status.ChangesFailed, "", "route x:\nrefused"),
		c.New("c1", "n1", status.ServiceMissing, "exports[a/c]", "no c"),
		c.New("c1", "n1", status.ServiceMissing, "exports[a/d]", "no d"),
		c.New("c1", "n1", status.UnknownSource, "", strings.Repeat("é", 400)),
	}
	var have []string
	for _, p := range c.Summarize(problems) {
		if len(p.Text) > status.MaxText || p.Path != "" {
			t.Errorf("%d bytes, path %q: %s", len(p.Text), p.Path, p.Code)
		}
		have = append(have, fmt.Sprintf("%s %s %.40s; %s", p.Severity, p.Code, p.Text, p.Next))
	}
	want := []string{
		"error changes-failed route x:; refused; hawser show all --cluster c1",
		"error unknown-source " + strings.Repeat("é", 40) + "; hawser diagnose",
		"error service-missing no a; no b; no c; and 1 more; kubectl get services,endpointslices -A",
		"warning conntrack-full full; conntrack -S on n1",
		"info quota-unsupported no quota; ",
	}
	if !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	var many []status.Problem
	for i := range 2 * status.MaxProblems {
		many = append(many, status.Problem{Code: fmt.Sprint(i), Severity: status.Error})
	}
	if n := len(c.Summarize(many)); n != status.MaxProblems {
		t.Errorf("%d problems", n)
	}
}
