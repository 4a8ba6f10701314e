// Package corefile puts what forwards the clusterset's domains to Hawser's name
// servers into the configuration of a cluster's own DNS, and takes it out again,
// byte for byte. It is pure text work: it reads and writes nothing itself, and it
// never guesses what somebody else's text means.
package corefile

import (
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// Marks of the block that is ours. A line counts when it begins so, whatever
// follows for people to read.
const (
	beginMark = "# hawser: begin"
	endMark   = "# hawser: end"

	beginLine = beginMark + " (kept by Hawser, which puts back what is changed up to its end)"
)

// Codes of problems with a configuration.
const (
	Damaged      = "corefile-damaged"    // our marks are not as they were written
	ZoneConflict = "corefile-taken"      // somebody else serves one of the domains
	Unreadable   = "corefile-unreadable" // the text is none that CoreDNS would take
	Reserved     = "corefile-reserved"   // a domain hides names of the cluster's own DNS
)

// Forward is what is to be forwarded, and whereto.
type Forward struct {
	Zones   []string // domains without the last dot
	Domains []string // the zones that are domains of the clusterset; others are reverse zones
	Servers []netip.Addr
}

// OtherFile is another text of the same DNS: one that imports ours, or that the same
// one imports.
type OtherFile struct{ Name, Text string }

// Valid reports whether there is anything to forward.
func (f Forward) Valid() bool { return len(f.Zones) > 0 && len(f.Servers) > 0 }

// text gives the server block.
func (f Forward) text(l listen) string {
	var b strings.Builder
	for _, zone := range f.Zones {
		b.WriteString(zone + ":" + l.port + " ")
	}
	b.WriteString("{\n    errors\n")
	if l.bind != "" {
		b.WriteString("    " + l.bind + "\n")
	}
	b.WriteString("    forward .")
	for _, server := range f.Servers {
		b.WriteString(" " + server.String())
	}
	// Without health checks: the only server is on the same node, so there is nothing
	// to be gained by leaving it out, and it is asked again as soon as it is back.
	b.WriteString(" {\n        max_fails 0\n    }\n}\n")
	return b.String()
}

// File gives a file of its own, for a Corefile that imports such. It lacks the zones
// that Insert leaves out, and is empty without any; the error names the first one.
func (f Forward) File(beside ...OtherFile) (string, error) {
	var err error
	if f.Zones, err = parseOtherFiles(beside).freeZones(f, defaultPort); len(f.Zones) == 0 {
		return "", err
	}
	return "# kept by Hawser, which puts back what is changed here\n" + f.text(listen{port: defaultPort}), err
}

// Insert gives the Corefile with our block as it should be: in the place where it
// is, otherwise at the front. All other bytes stay. The error is a
// diag.Diagnostic. With the codes Taken and Reserved the block lacks zones that another
// block serves, and domains that the cluster's own DNS needs; it is absent if no zone is
// left. CoreDNS accepts no configuration that serves a zone twice. With any other code Insert
// returns the text unchanged. Other files count if the Corefile imports any.
func Insert(text string, f Forward, beside ...OtherFile) (string, error) {
	at, err := findBlock(text)
	if err != nil {
		return text, err
	}
	before, after := text[:at.begin], text[at.end:]
	others, imports, err := parse(before, after)
	if err != nil {
		return text, err
	}
	l, err := others.listen()
	if err != nil {
		return text, err
	}
	if imports {
		others = append(others, parseOtherFiles(beside)...)
	}
	if f.Zones, err = others.freeZones(f, l.port); len(f.Zones) == 0 {
		return before + after, err
	}
	return before + beginLine + "\n" + f.text(l) + endMark + "\n" + after, err
}

// Remove gives the Corefile without our block: what Insert was given.
func Remove(text string) (string, error) {
	at, err := findBlock(text)
	if err != nil {
		return text, err
	}
	return text[:at.begin] + text[at.end:], nil
}

// SplitBlock gives our block with its marks, and all that is not ours. There is none
// when it is empty; ours is true where any mark of ours is, in order or not.
func SplitBlock(text string) (block, rest string, ours bool) {
	at, err := findBlock(text)
	if err != nil {
		return "", text, true
	}
	return text[at.begin:at.end], text[:at.begin] + text[at.end:], at.end > at.begin
}

// blockRange is where our block stands, from its first byte to the one after it.
type blockRange struct{ begin, end int }

// findBlock looks for our marks. Without any the span is empty, at the front.
func findBlock(text string) (blockRange, error) {
	var at blockRange
	var begins, ends []int // lines
	offset := 0
	for number, line := range slices.Collect(strings.SplitAfterSeq(text, "\n")) {
		switch {
		case isMark(line, beginMark):
			begins = append(begins, number+1)
			at.begin = offset
		case isMark(line, endMark):
			ends = append(ends, number+1)
			at.end = offset + len(line)
		}
		offset += len(line)
	}
	switch {
	case len(begins)+len(ends) == 0:
		return blockRange{}, nil
	case len(begins) == 0:
		return at, damaged(ends[0], "the end mark has no begin mark before it")
	case len(ends) == 0:
		return at, damaged(begins[0], "the begin mark has no end mark after it")
	case len(begins) > 1:
		return at, damaged(begins[1], "the begin mark is there twice")
	case len(ends) > 1:
		return at, damaged(ends[1], "the end mark is there twice")
	case ends[0] < begins[0]:
		return at, damaged(ends[0], "the end mark is before the begin mark")
	}
	if isUnclosed(text[:at.begin]) {
		return at, damaged(begins[0], "the block stands inside another one")
	}
	return at, nil
}

func isMark(line, mark string) bool {
	rest, is := strings.CutPrefix(strings.TrimSpace(line), mark)
	return is && (rest == "" || rest[0] == ' ')
}

func damaged(line int, summary string) error {
	return diag.Diagnostic{
		Severity: diag.Error, Code: Damaged, Pos: diag.Pos{Line: line, Column: 1}, Summary: summary,
		Hint: `delete the lines of Hawser's block, both marks ("` + beginMark + `" and "` + endMark + `") and what is between them; a whole one is then written`,
	}
}

// clusterDNS is what NodeLocal DNSCache puts the address of the cluster's own DNS for.
const clusterDNS = "__PILLAR__CLUSTER__DNS__"

// BypassesForward reports whether the Corefile of a cache before the cluster's own DNS sends
// questions for a domain past both the name servers of the clusterset and that DNS: no
// server block is for the domain, and the root's forwards elsewhere. What cannot be read
// lacks nothing.
func BypassesForward(text, domain string) bool {
	all, imports, err := parse(text, "")
	if err != nil || imports {
		return false
	}
	lacks := false
	for _, s := range all {
		for _, key := range s.keys {
			switch a := addressOf(key.text); {
			case a.scheme != "dns":
			case slices.Contains(a.zones(), domain):
				return false
			case a.zone == "":
				lacks = !slices.ContainsFunc(s.body, func(t token) bool { return t.text == clusterDNS })
			}
		}
	}
	return lacks
}

// ClusterDomains returns the DNS domains of the cluster that a Corefile of its DNS or of a cache
// names. It returns nothing for a text that cannot be read.
func ClusterDomains(text string) []string {
	all, _, err := parse(text, "")
	if err != nil {
		return nil
	}
	return all.clusterDomains()
}

// ImportsServers reports whether a Corefile takes server blocks from files whose names end
// in .server, as those of k3s (/etc/coredns/custom/*.server) and AKS (custom/*.server) do.
// What cannot be read imports nothing.
func ImportsServers(text string) bool {
	all := tokens(text)
	for len(all) > 0 {
		if all[0].text != "import" || !all[0].first {
			_, rest, err := next(all, text)
			if err != nil {
				return false
			}
			all = rest
			continue
		}
		rest := skipLine(all)
		for _, file := range all[1 : len(all)-len(rest)] {
			if strings.HasSuffix(file.text, "/*.server") {
				return true
			}
		}
		all = rest
	}
	return false
}
