package diag

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxRelated = 3   // other places printed for one finding
	maxSnippet = 120 // characters of a source line that are printed
	leadIn     = 40  // of them before the finding, in a longer line
	tabWidth   = 4   // cells that a tab is printed as
)

// ANSI sequences; used only when the caller says that the output understands them.
const (
	red    = "\x1b[1;31m"
	yellow = "\x1b[1;33m"
	bold   = "\x1b[1m"
	reset  = "\x1b[0m"
)

// Print writes each finding for a person: position and summary, the source line with the
// position underlined, related positions, and the hint. Sources holds the text of each file
// by its name in Pos. Findings in other files are printed without a source line.
func Print(w io.Writer, l List, sources map[string][]byte, color bool) error {
	p := printer{color: color, lines: map[string][][]byte{}}
	for name, raw := range sources {
		p.lines[name] = bytes.Split(raw, []byte("\n"))
	}
	for _, d := range l {
		p.finding(d)
	}
	if _, err := w.Write(p.out.Bytes()); err != nil {
		return fmt.Errorf("print findings: %w", err)
	}
	return nil
}

type printer struct {
	out   bytes.Buffer
	color bool
	lines map[string][][]byte
}

func (p *printer) finding(d Diagnostic) {
	d = d.Clipped()
	if at := d.Pos.String(); at != "" {
		p.out.WriteString(p.paint(bold, at+":") + " ")
	}
	mark := red
	if d.Severity == Warning {
		mark = yellow
	}
	p.out.WriteString(p.paint(mark, string(d.Severity)+":") + " ")
	if d.Path != "" {
		p.out.WriteString(printable(d.Path) + ": ")
	}
	p.out.WriteString(printable(d.Summary) + "\n")
	p.snippet(d.Pos, mark)
	for i, r := range d.Related {
		if i == maxRelated {
			fmt.Fprintf(&p.out, "   also in %d more places\n", len(d.Related)-maxRelated)
			break
		}
		if r.Pos.IsValid() {
			fmt.Fprintf(&p.out, "   also %s\n", r.Pos)
		} else {
			fmt.Fprintf(&p.out, "   also %s\n", printable(r.Path))
		}
	}
	if d.Hint != "" {
		p.out.WriteString("   hint: " + printable(d.Hint) + "\n")
	}
}

// snippet writes the line of a place with the place underlined.
func (p *printer) snippet(at Pos, mark string) {
	lines := p.lines[at.File]
	if at.Line < 1 || at.Line > len(lines) {
		return
	}
	text := bytes.TrimSuffix(lines[at.Line-1], []byte("\r"))
	before, under, after := split(text, around(text, at))
	if body := strings.TrimLeft(under, "- "); strings.HasPrefix(body, "[") || strings.HasPrefix(body, "{") {
		under = clipValues(under) // a collection of values
	} else if clipped := Clip(under); clipped != under {
		under, after = clipped, "" // what follows can belong to the same value
	}
	line := cells(before) + cells(under) + cells(after)
	if strings.TrimSpace(line) == "" {
		return
	}
	fmt.Fprintf(&p.out, "%5d | %s\n", at.Line, strings.TrimRight(line, " "))
	carets := strings.Repeat("^", max(width(cells(under)), 1))
	fmt.Fprintf(&p.out, "%s%s\n", strings.Repeat(" ", len("    1 | ")+width(cells(before))), p.paint(mark, carets))
}

// maxSecret is the most bytes before and after a place that belong to a secret there.
const maxSecret = 2048

// around returns the place widened to all of a secret that it covers a part of: a part is not
// known by its form.
func around(line []byte, at Pos) Pos {
	start := runesLength(line, at.Column-1)
	end := start + runesLength(line[start:], max(at.Width, 1))
	// A long line can have many findings: search near the place only.
	low, high := max(start-maxSecret, 0), min(end+maxSecret, len(line))
	for _, m := range identity.FindAllIndex(line[low:high], -1) {
		from, to := low+m[0], low+m[1]
		if from < end && start < to {
			start, end = min(from, start), max(to, end)
			at.Column, at.Width = utf8.RuneCount(line[:start])+1, utf8.RuneCount(line[start:end])
		}
	}
	return at
}

// runesLength returns how many bytes the first n characters of a line have.
func runesLength(line []byte, n int) int {
	length := 0
	for ; n > 0 && length < len(line); n-- {
		_, size := utf8.DecodeRune(line[length:])
		length += size
	}
	return length
}

// split cuts a line into the parts before, at and after a position. Of a long line only
// the surroundings of the position are kept.
func split(line []byte, at Pos) (before, under, after string) {
	length, from := utf8.RuneCount(line), max(at.Column-1, 0)
	cutLeft, cutRight := "", ""
	if length > maxSnippet {
		if first := max(min(from, length)-leadIn, 0); first > 0 {
			cutLeft, from = "…", from-first
			length -= first
			cut := runesLength(line, first)
			rest := cutIdentity(line, cut)
			line = line[cut:]
			line, from, length = line[rest:], max(from-rest, 0), length-rest
		}
		if length > maxSnippet {
			cutRight = "…"
			line = line[:min(len(line), maxSnippet*utf8.UTFMax)]
		}
	}
	runes := []rune(string(line))
	runes = runes[:min(len(runes), maxSnippet)]
	from = min(from, len(runes))
	to := min(from+max(at.Width, 1), len(runes))
	return cutLeft + clipValues(string(runes[:from])), string(runes[from:to]), strings.TrimSuffix(clipValues(string(runes[to:])), cutRight) + cutRight
}

// maxIdentity is more characters than an age identity has.
const maxIdentity = 256

// cutIdentity returns how many characters after a cut belong to an identity that begins
// before it. Without its beginning a reader would not recognise them as secret.
func cutIdentity(line []byte, cut int) int {
	from := max(cut-maxIdentity, 0)
	for _, at := range identity.FindAllIndex(line[from:min(cut+maxIdentity, len(line))], -1) {
		if from+at[0] < cut && from+at[1] > cut {
			return from + at[1] - cut
		}
	}
	return 0
}

// cells makes a piece of a line printable, with tabs as spaces.
func cells(text string) string {
	return printable(strings.ReplaceAll(text, "\t", strings.Repeat(" ", tabWidth)))
}

// identity matches secrets by their form: age identities, tokens of git hosts, JSON Web Tokens,
// and the login of a URL.
var identity = regexp.MustCompile(`(?i:AGE-SECRET-KEY-[0-9A-Z-]+)|\b(?:gh[pousr]_|github_pat_|glpat-|eyJ)[A-Za-z0-9_-]{10,}[A-Za-z0-9_.-]*|(?:://)[^\s/@:]+:[^\s/@]+@`)

// printable replaces control sequences of terminals, and text that GitHub's runners would
// execute as a command anywhere in a log line. (Commands with :: count only at the beginning
// of a line, where no foreign text is printed.) It also hides secrets in the wrong file.
func printable(text string) string {
	text = strings.ReplaceAll(text, "##[", "##"+string(utf8.RuneError))
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, identity.ReplaceAllString(text, "(sensitive)"))
}

// Line writes a text as one line of a log: what others named in it, such as a file, can
// neither move a terminal's cursor nor begin a line that a CI takes for a command.
func Line(text string) string {
	return printable(strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "; "))
}

// width counts the terminal cells that a text takes.
func width(text string) int {
	n := 0
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// wide reports whether terminals give a character two cells: East Asian
// ideographs and syllables, their full-width forms, and pictographs (Unicode
// Annex 11, reduced to whole scripts and blocks).
func wide(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) ||
		r >= 0x3000 && r <= 0x303e || r >= 0xff01 && r <= 0xff60 || r >= 0x1f300 && r <= 0x1faff
}

func (p *printer) paint(sequence, text string) string {
	if !p.color {
		return text
	}
	return sequence + text + reset
}
