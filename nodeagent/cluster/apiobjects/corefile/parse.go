package corefile

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

const defaultPort = "53"

// token is one word of a Corefile.
type token struct {
	text  string
	line  int  // from 1
	start int  // offset of its first byte, quotes included
	end   int  // offset of the byte after it
	first bool // of its line
}

// tokens splits a text as the lexer of CoreDNS does (github.com/coredns/caddy/caddyfile). White
// space separates words. Double quotes enclose words with white space. A # at the beginning of a
// word hides the rest of the line.
func tokens(text string) []token {
	const byteOrderMark = "\ufeff"
	var out []token
	line, lastLine, i := 1, 0, 0
	if strings.HasPrefix(text, byteOrderMark) {
		i = len(byteOrderMark)
	}
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\n':
			line++
			i++
		case unicode.IsSpace(r):
			i += size
		case r == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		default:
			t := token{line: line, start: i, first: line != lastLine}
			closed := true
			if r == '"' {
				t.text, t.end, closed = quoted(text, i)
			} else {
				t.text, t.end = readWord(text, i)
			}
			if i = t.end; t.text == "" && !closed {
				return out
			}
			line += strings.Count(t.text, "\n")
			lastLine = line
			out = append(out, t)
		}
	}
	return out
}

// readWord returns the word that begins at i and the offset after it. CoreDNS skips carriage
// returns, so they do not end a word. A # within a word hides only the rest of the word.
func readWord(text string, i int) (string, int) {
	var b strings.Builder
	end, hidden := i, false
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		if r == '\r' {
			continue
		}
		if unicode.IsSpace(r) {
			break
		}
		hidden = hidden || r == '#'
		if !hidden {
			b.WriteRune(r)
		}
		end = i
	}
	return b.String(), end
}

// quoted returns the text of the quotes that begin at i, the offset after the quotes, and whether
// they are closed. A backslash escapes the next rune, and remains in the text unless that rune is a
// quote.
func quoted(text string, i int) (string, int, bool) {
	var b strings.Builder
	escaped := false
	for i++; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch {
		case !escaped && r == '\\':
			escaped = true
			continue
		case !escaped && r == '"':
			return b.String(), i, true
		case escaped && r != '"':
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		escaped = false
	}
	return b.String(), i, false
}

// isUnclosed reports whether a text ends within a block.
func isUnclosed(text string) bool {
	depth := 0
	for _, t := range tokens(text) {
		switch t.text {
		case "{":
			depth++
		case "}":
			depth--
		}
	}
	return depth != 0
}

// server is one foreign server block.
type server struct {
	keys []token
	body []token
	text string // that the offsets of the tokens refer to
	file string // that contains the block; empty for the Corefile itself
}

// servers are all foreign server blocks of a Corefile.
type servers []server

// parse returns the server blocks before and after Hawser's block. imports reports whether the text
// imports a file outside of server blocks. Line numbers do not count Hawser's block.
func parse(before, after string) (out servers, imports bool, err error) {
	text := before + after
	all := tokens(text)
	for len(all) > 0 {
		if all[0].text == "import" && all[0].first {
			all, imports = skipLine(all), true
			continue
		}
		s, rest, err := next(all, text)
		if err != nil {
			return nil, false, err
		}
		out, all = append(out, s), rest
	}
	return out, imports, nil
}

// parseOtherFiles returns the server blocks of other files. It skips files that cannot be parsed:
// CoreDNS does not serve them either, and Hawser does not repair foreign files.
func parseOtherFiles(files []OtherFile) servers {
	var out servers
	for _, file := range files {
		_, rest, _ := SplitBlock(file.Text)
		some, _, err := parse(rest, "")
		if err != nil {
			continue
		}
		for _, s := range some {
			s.file = file.Name
			out = append(out, s)
		}
	}
	return out
}

func skipLine(all []token) []token {
	for i := 1; i < len(all); i++ {
		if all[i].first {
			return all[i:]
		}
	}
	return nil
}

// next returns the first server block and the tokens after it.
func next(all []token, text string) (server, []token, error) {
	s := server{text: text}
	for i, t := range all {
		switch {
		case t.text == "{":
			end := closing(all[i:])
			if end < 0 {
				return s, nil, unreadable(t.line, "the block that opens here is not closed")
			}
			s.body = all[i+1 : i+end]
			return s, all[i+end+1:], nil
		case t.text == "}":
			return s, nil, unreadable(t.line, "closing brace without an opening brace")
		case t.first && i > 0 && !strings.HasSuffix(all[i-1].text, ","):
			return s, nil, unreadable(all[0].line, "a server block without braces must be the only one")
		}
		s.keys = append(s.keys, t)
	}
	return s, nil, unreadable(all[0].line, "a server block without braces must be the only one")
}

// closing returns the index of the brace that closes the first brace, -1 if absent.
func closing(all []token) int {
	depth := 0
	for i, t := range all {
		switch t.text {
		case "{":
			depth++
		case "}":
			depth--
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

func unreadable(line int, summary string) error {
	return diag.Diagnostic{
		Severity: diag.Error, Code: Unreadable, Pos: diag.Pos{Line: line, Column: 1}, Summary: summary,
		Hint: "write each server block with braces around it; until then Hawser changes nothing",
	}
}

// address is a parsed key of a server block.
type address struct {
	scheme string // default dns
	zone   string // lower case, without the last dot; empty for the root
	port   string
}

var portRE = regexp.MustCompile(`^(.*):([0-9]+|\{[$%][^{}]*\})$`)

func addressOf(key string) address {
	a := address{scheme: "dns", port: defaultPort}
	key = strings.TrimSuffix(key, ",")
	if scheme, rest, found := strings.Cut(key, "://"); found {
		a.scheme, key = strings.ToLower(scheme), rest
	}
	if parts := portRE.FindStringSubmatch(key); parts != nil {
		key, a.port = parts[1], parts[2]
	}
	a.zone = strings.ToLower(strings.TrimSuffix(key, "."))
	return a
}

// zones returns the domains of an address: several for a prefix.
func (a address) zones() []string {
	if prefix, err := netip.ParsePrefix(a.zone); err == nil {
		return fabric.ReverseZones(prefix)
	}
	return []string{a.zone}
}

// listen is the port and the bind directive of the cluster's DNS. Hawser's block needs the same
// port and directive, because CoreDNS cannot open a port in two ways.
type listen struct {
	port string
	bind string // directive
}

// listen returns the port and the bind directive of the root's server, or else of the first server.
func (all servers) listen() (listen, error) {
	out := listen{port: defaultPort}
	found := false
	for _, s := range all {
		for _, key := range s.keys {
			a := addressOf(key.text)
			if strings.HasPrefix(key.text, "(") || a.scheme != "dns" || found && a.zone != "" {
				continue
			}
			bind, err := s.bind()
			if err != nil {
				return out, err
			}
			out, found = listen{port: a.port, bind: bind}, true
			if a.zone == "" {
				return out, nil
			}
		}
	}
	return out, nil
}

// bind returns the bind directive of a server, empty if absent.
func (s server) bind() (string, error) {
	depth := 0
	for i, t := range s.body {
		switch {
		case t.text == "{":
			depth++
		case t.text == "}":
			depth--
		case t.text == "bind" && t.first && depth == 0:
			last := t
			for _, more := range s.body[i+1:] {
				if more.first {
					break
				}
				last = more
			}
			if last.text == "{" {
				return "", unreadable(t.line, "a bind directive with a block is not supported")
			}
			return s.text[t.start:last.end], nil
		}
	}
	return "", nil
}

// freeZones returns the zones that may be forwarded and that no other server block serves at the
// same port. The error names the first omitted zone.
func (all servers) freeZones(f Forward, port string) ([]string, error) {
	zones := slices.Clone(f.Zones)
	var first error
	exclude := func(s server, at token, who, zone string) {
		if i := slices.Index(zones, zone); i >= 0 {
			zones = slices.Delete(zones, i, i+1)
			if first == nil {
				first = zoneConflict(s.file, at.line, who+" serves "+zone)
			}
		}
	}
	for _, s := range all {
		for _, key := range s.keys {
			if a := addressOf(key.text); a.scheme == "dns" && a.port == port {
				for _, zone := range a.zones() {
					exclude(s, key, "a foreign server block", zone)
				}
			}
		}
		for i, t := range s.body {
			if !t.first || t.text != "multicluster" {
				continue
			}
			for _, arg := range s.body[i+1:] {
				if arg.first {
					break
				}
				exclude(s, t, "CoreDNS's own multicluster option", addressOf(arg.text).zone)
			}
		}
	}
	zones, err := f.unreserved(zones, all.clusterDomains()...)
	return zones, cmp.Or(first, err)
}

// clusterDomains returns the DNS domains of the cluster: the zones of the plugin kubernetes. In the
// Corefile of a cache they are the zones that the cache forwards to the cluster's DNS.
func (all servers) clusterDomains() []string {
	var out []string
	add := func(list []token) {
		for _, t := range list {
			if zone := addressOf(t.text).zone; fabric.IsDomain(zone) {
				out = append(out, zone)
			}
		}
	}
	for _, s := range all {
		for i, t := range s.body {
			switch {
			case t.text == clusterDNS:
				add(s.keys)
			case t.first && t.text == "kubernetes":
				args := s.body[i+1:]
				n := slices.IndexFunc(args, func(t token) bool { return t.first || t.text == "{" })
				if n < 0 {
					n = len(args)
				}
				if n == 0 {
					add(s.keys) // the plugin's default
				}
				add(args[:n])
			}
		}
	}
	return out
}

// unreserved returns zones without the domains that conflict with the cluster's own DNS or with
// another domain of the clusterset. The error names the first omitted domain.
func (f Forward) unreserved(zones []string, clusterDomains ...string) ([]string, error) {
	var first error
	for i, domain := range f.Domains {
		why := fabric.DomainConflict(domain, f.Domains[:i], clusterDomains...)
		if why == "" || !slices.Contains(zones, domain) {
			continue
		}
		// Delete the last zone of the name: an earlier domain of the same name stays.
		at := len(zones) - 1
		for zones[at] != domain {
			at--
		}
		zones = slices.Delete(slices.Clone(zones), at, at+1)
		if first == nil {
			first = diag.Diagnostic{
				Severity: diag.Error, Code: Reserved, Summary: domain + " " + why,
				Hint: "change domain or extraDomains in the topology; until then Hawser does not forward it",
			}
		}
	}
	return zones, first
}

func zoneConflict(file string, line int, summary string) error {
	return diag.Diagnostic{
		Severity: diag.Error, Code: ZoneConflict, Pos: diag.Pos{File: file, Line: line, Column: 1}, Summary: summary,
		Hint: "remove it, or set clusters[].dns: none in the topology if it is intended; until then Hawser does not serve the zone",
	}
}
