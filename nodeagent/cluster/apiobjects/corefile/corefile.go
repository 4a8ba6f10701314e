// Package corefile adds the forwarding of the clusterset's domains to the configuration of a
// cluster's own DNS, and removes the forwarding again byte for byte. It only transforms text,
// without I/O, and never guesses the meaning of foreign text.
package corefile

import (
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// Marks of Hawser's block. A line is a mark if it has the mark as prefix. The rest of the line is
// for the reader of the file.
const (
	beginMark = "# hawser: begin"
	endMark   = "# hawser: end"

	beginLine = beginMark + " (managed by Hawser; changes up to the end mark are reverted)"
)

// Codes of problems with a configuration.
const (
	Damaged      = "corefile-damaged"    // Hawser's marks are incomplete or out of order
	ZoneConflict = "corefile-conflict"   // a foreign server block serves one of the domains
	Unreadable   = "corefile-unreadable" // CoreDNS would reject the text
	Reserved     = "corefile-reserved"   // a domain hides names of the cluster's own DNS
)

// Forward describes the zones to forward and the servers to forward them to.
type Forward struct {
	Zones   []string // domains without the trailing dot
	Domains []string // the zones that are domains of the clusterset; others are reverse zones
	Servers []netip.Addr
}

// OtherFile is another file of the same CoreDNS configuration: a file that imports Hawser's file,
// or that the same Corefile imports.
type OtherFile struct{ Name, Text string }

// Valid reports whether f has zones and servers.
func (f Forward) Valid() bool { return len(f.Zones) > 0 && len(f.Servers) > 0 }

// text returns the server block.
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
	// max_fails 0 disables health checks. Every node, also CoreDNS's own, serves the address: a
	// health check would only delay the first query after a restart.
	b.WriteString(" {\n        max_fails 0\n    }\n}\n")
	return b.String()
}

// File returns the content of a separate file, for a Corefile that imports such files. It omits the
// same zones as Insert. Without any zone the content is empty. The error names the first omitted
// zone.
func (f Forward) File(others ...OtherFile) (string, error) {
	var err error
	if f.Zones, err = parseOtherFiles(others).freeZones(f, defaultPort); len(f.Zones) == 0 {
		return "", err
	}
	return "# managed by Hawser; changes are reverted\n" + f.text(listen{port: defaultPort}), err
}

// Insert returns the Corefile with Hawser's block as desired. An existing block keeps its position.
// A new block is at the front. All other bytes stay. The error is a diag.Diagnostic.
//
// With the code ZoneConflict the block omits zones that another block serves: CoreDNS accepts no
// configuration that serves a zone twice. With the code Reserved it omits domains that the
// cluster's own DNS needs. If no zone is left, Insert omits the block. With any other code Insert
// returns the text unchanged. Insert uses otherFiles only if the Corefile imports files.
func Insert(text string, f Forward, otherFiles ...OtherFile) (string, error) {
	at, err := findBlock(text)
	if err != nil {
		return text, err
	}
	before, after := text[:at.start], text[at.end:]
	others, imports, err := parse(before, after)
	if err != nil {
		return text, err
	}
	l, err := others.listen()
	if err != nil {
		return text, err
	}
	if imports {
		others = append(others, parseOtherFiles(otherFiles)...)
	}
	if f.Zones, err = others.freeZones(f, l.port); len(f.Zones) == 0 {
		return before + after, err
	}
	return before + beginLine + "\n" + f.text(l) + endMark + "\n" + after, err
}

// Remove returns the Corefile without Hawser's block: the inverse of Insert.
func Remove(text string) (string, error) {
	at, err := findBlock(text)
	if err != nil {
		return text, err
	}
	return text[:at.start] + text[at.end:], nil
}

// SplitBlock returns Hawser's block with its marks, and the rest of the text. The block is empty if
// absent. ours reports whether the text has any of Hawser's marks, even damaged ones.
func SplitBlock(text string) (block, rest string, ours bool) {
	at, err := findBlock(text)
	if err != nil {
		return "", text, true
	}
	return text[at.start:at.end], text[:at.start] + text[at.end:], at.end > at.start
}

// blockRange is the position of Hawser's block, as a half-open range of bytes.
type blockRange struct{ start, end int }

// findBlock finds Hawser's block. Without any mark the range is empty, at the front.
func findBlock(text string) (blockRange, error) {
	var at blockRange
	var begins, ends []int // lines
	offset := 0
	for number, line := range slices.Collect(strings.SplitAfterSeq(text, "\n")) {
		switch {
		case isMark(line, beginMark):
			begins = append(begins, number+1)
			at.start = offset
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
		return at, damaged(begins[1], "the begin mark occurs twice")
	case len(ends) > 1:
		return at, damaged(ends[1], "the end mark occurs twice")
	case ends[0] < begins[0]:
		return at, damaged(ends[0], "the end mark is before the begin mark")
	}
	if isUnclosed(text[:at.start]) {
		return at, damaged(begins[0], "the block is inside another block")
	}
	return at, nil
}

func isMark(line, mark string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark)
	return ok && (rest == "" || rest[0] == ' ')
}

func damaged(line int, summary string) error {
	return diag.Diagnostic{
		Severity: diag.Error, Code: Damaged, Pos: diag.Pos{Line: line, Column: 1}, Summary: summary,
		Hint: `delete Hawser's block, both marks ("` + beginMark + `" and "` + endMark + `") and the lines between them; Hawser then writes a new block`,
	}
}

// clusterDNS is the placeholder of NodeLocal DNSCache for the address of the cluster's own DNS.
const clusterDNS = "__PILLAR__CLUSTER__DNS__"

// BypassesForward reports whether a DNS cache bypasses both the clusterset's name servers and the
// cluster's own DNS for a domain. A cache does so if its Corefile has no server block for the
// domain and the root forwards elsewhere. BypassesForward returns false for a text that cannot be
// parsed.
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
// names. It returns nil for a text that cannot be parsed.
func ClusterDomains(text string) []string {
	all, _, err := parse(text, "")
	if err != nil {
		return nil
	}
	return all.clusterDomains()
}

// ImportsServers reports whether a Corefile imports server blocks from files whose names end in
// .server. The Corefiles of k3s (/etc/coredns/custom/*.server) and AKS (custom/*.server) do so.
// ImportsServers returns false for a text that cannot be parsed.
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
