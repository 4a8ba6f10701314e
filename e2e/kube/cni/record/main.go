// Command record records the test results of e2e/kube on a network of the lab. It reads the output
// of `go test -json` and prints the output of the tests. It writes a file of e2e/kube/cni/results
// and the table of docs/compatibility.md. It must run in the root of the repository. It fails if a
// test failed.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/e2e/kube/cni"
)

func main() {
	if err := run(".", os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// Record is the file with the test results of one network and its settings.
type Record struct {
	Network  string            `json:"network"`
	Version  string            `json:"version,omitempty"`
	Settings string            `json:"settings,omitempty"` // NAME=VALUE, separated by commas
	Proxy    string            `json:"proxy"`              // kube-proxy's mode
	Tests    map[string]Result `json:"tests"`              // result of each test's last run
}

// Result is the result of a test.
type Result struct {
	Result string `json:"result"` // pass, fail or skip
	Date   string `json:"date"`
	Commit string `json:"commit"` // tested commit
}

// run records a run of tests. root is the root of the repository.
func run(root string, args []string, events io.Reader, out io.Writer) error {
	r := Record{Tests: map[string]Result{}}
	var commit string
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	flags.StringVar(&r.Network, "network", "", "as kubelab up --cni has it")
	flags.StringVar(&r.Settings, "settings", "", "of the network, NAME=VALUE,NAME=VALUE")
	flags.StringVar(&r.Proxy, "proxy", "nftables", "mode of kube-proxy")
	flags.StringVar(&commit, "commit", "", "tested commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	network, err := cni.Find(r.Network)
	if err != nil {
		return err
	}
	file := filepath.Join(root, resultsDir, r.file())
	if raw, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	r.Version = version(filepath.Join(root, "e2e/kube/cni", network.Dir, "programs/go.mod"))
	failed := r.readTests(events, out, commit)
	raw, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(raw, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return errors.Join(failed, writeTable(root))
}

// version returns the version of a network's programs by the module that builds them; empty if none.
func version(module string) string {
	text, err := os.ReadFile(module)
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`(?m)^require \S+ (v\S+)$`).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// The directory of the records, and the document with their table.
const (
	resultsDir = "e2e/kube/cni/results"
	document   = "docs/compatibility.md"
)

// file is the name of the record's file.
func (r Record) file() string {
	var parts []string
	for _, part := range []string{r.Network, r.Settings, r.Proxy} {
		if part != "" {
			parts = append(parts, regexp.MustCompile(`[^A-Za-z0-9.=_]+`).ReplaceAllString(part, "-"))
		}
	}
	return strings.Join(parts, "-") + ".json"
}

// readTests reads the output of the tests. It fails if a test fails or the output is incomplete.
func (r *Record) readTests(events io.Reader, out io.Writer, commit string) error {
	ended := errors.New("the tests did not end")
	for decoder := json.NewDecoder(events); ; {
		var e struct {
			Time                 time.Time
			Action, Test, Output string
		}
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return ended
		}
		if err != nil {
			return fmt.Errorf("read events of tests: %w", err)
		}
		result := Result{e.Action, e.Time.UTC().Format(time.DateOnly), commit}
		switch {
		case e.Action == "output" || e.Action == "build-output":
			_, _ = io.WriteString(out, e.Output) // the record has the result if the output fails
		case strings.Contains(e.Test, "/"): // a subtest counts in its parent
		case e.Action == "run":
			result.Result = "fail" // until it ends
			r.Tests[e.Test] = result
		case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		case e.Test != "":
			r.Tests[e.Test] = result
		case e.Action == "fail":
			ended = errors.New("tests failed")
		default:
			ended = nil
		}
	}
}

// writeTable writes the table of all records into the document.
func writeTable(root string) error {
	records, err := read(root)
	if err != nil {
		return err
	}
	path := filepath.Join(root, document)
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read document: %w", err)
	}
	text, err := withTable(string(raw), table(records))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

// read returns the records of a repository, sorted by network, settings and mode of kube-proxy.
func read(root string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(root, resultsDir, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find records in %s: none there (%v)", filepath.Join(root, resultsDir), err)
	}
	var out []Record
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read record: %w", err)
		}
		var r Record
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if filepath.Base(file) != r.file() {
			return nil, fmt.Errorf("%s is about another network or other settings", file)
		}
		out = append(out, r)
	}
	return out, nil
}

// table returns the records as a Markdown table.
func table(records []Record) string {
	out := "| network | settings | Services | passed | failed | skipped | when, which commit |\n|---|---|---|---|---|---|---|\n"
	for _, r := range records {
		ended, when := map[string][]string{}, map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(r.Tests)) {
			t := r.Tests[name]
			ended[t.Result] = append(ended[t.Result], strings.TrimPrefix(name, "Test"))
			when[t.Date+" "+t.Commit] = true
		}
		cells := []string{
			strings.TrimSpace(r.Network + " " + r.Version), strings.ReplaceAll(r.Settings, ",", ", "), r.Proxy,
			strings.Join(ended["pass"], ", "), strings.Join(ended["fail"], ", "), strings.Join(ended["skip"], ", "),
			strings.Join(slices.Sorted(maps.Keys(when)), ", "),
		}
		out += strings.ReplaceAll("| "+strings.Join(cells, " | ")+" |\n", "|  |", "| |")
	}
	return strings.ReplaceAll(out, "|  |", "| |")
}

// withTable returns a text with the table between its two marks.
func withTable(text, table string) (string, error) {
	const begin, end = "<!-- begin: results -->\n", "<!-- end: results -->\n"
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("the marks of the table are not there: %s%s", begin, end)
	}
	return before + begin + "\n" + table + "\n" + end + after, nil
}
