package observe

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/status"
)

// Elements of the JUnit XML format that Jenkins, GitLab and GitHub actions read.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"` // seconds
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"` // seconds
		Failure *junitMessage `xml:"failure"`
		Error   *junitMessage `xml:"error"`
		Skipped *junitMessage `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
	}
)

// junit returns the results as JUnit XML: a suite for each node and pod, with a case for each name.
// A name without a reply is a failure, an unknown result is an error.
func junit(v verification) ([]byte, error) {
	r := junitReport{Name: "hawser verify"}
	for _, n := range slices.Concat(v.Nodes, v.Pods) {
		s := junitSuite{Name: client(n)}
		micros := int64(0)
		for _, result := range n.Results {
			micros += result.Micros
			s.add(junitCaseOf(client(n), result))
		}
		if n.Problem != "" {
			s.add(junitCase{Class: client(n), Name: "report of the pod", Time: seconds(0), Error: &junitMessage{n.Problem}})
		}
		s.Time = seconds(micros)
		if s.Tests > 0 {
			r.add(s)
		}
	}
	if d := v.Failover; d != nil {
		s := junitSuite{Name: "failover " + d.Gateway, Time: seconds(0)}
		for _, p := range d.Requests {
			c := junitCase{Class: s.Name, Name: "requests from " + p.From + " to " + p.Target, Time: seconds(0)}
			if p.Failed+p.Broken > 0 || p.isLate() {
				c.Failure = &junitMessage{fmt.Sprintf("%d of %d requests lost, %d late, %d open connections broken: %s", p.Failed, p.Attempts, p.Late, p.Broken, p.LastError)}
			}
			s.add(c)
		}
		c := junitCase{Class: s.Name, Name: "drain and undrain", Time: seconds(0)}
		if d.Drained == "" || d.Undrain != "" {
			c.Failure = &junitMessage{strings.Join(d.failures(), "; ")}
		}
		s.add(c)
		r.add(s)
	}
	for _, u := range v.Unreachable {
		s := junitSuite{Name: u.Agent, Time: seconds(0)}
		s.add(junitCase{Class: u.Agent, Name: "answer of the agent", Time: seconds(0), Error: &junitMessage{u.Error}})
		r.add(s)
	}
	if r.Tests == r.Skipped {
		s := junitSuite{Name: "exports", Time: seconds(0)}
		s.add(junitCase{Class: "exports", Name: "there is an export to verify", Time: seconds(0), Error: &junitMessage{v.exit().Error()}})
		r.add(s)
	}
	raw, err := xml.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(xml.Header), raw, []byte("\n")), nil
}

func junitCaseOf(class string, r status.Verified) junitCase {
	c := junitCase{Class: class, Name: r.Name + " (" + r.Export + ")", Time: seconds(r.Micros)}
	switch r.Verdict() {
	case status.VerdictFailed:
		c.Failure = &junitMessage{r.Error}
	case status.VerdictUnknown:
		c.Error = &junitMessage{r.Unknown}
	case status.VerdictSkipped:
		c.Skipped = &junitMessage{r.Skipped}
	case status.VerdictAnswered:
	}
	return c
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	s.Cases = append(s.Cases, c)
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

func (r *junitReport) add(s junitSuite) {
	r.Suites = append(r.Suites, s)
	r.Tests, r.Failures, r.Errors, r.Skipped = r.Tests+s.Tests, r.Failures+s.Failures, r.Errors+s.Errors, r.Skipped+s.Skipped
}

func seconds(micros int64) string { return fmt.Sprintf("%.3f", float64(micros)/1e6) }
