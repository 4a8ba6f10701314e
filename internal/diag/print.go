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
	maxRelated    = 3   // related positions printed for one finding
	maxSnippet    = 120 // printed characters of a source line
	contextBefore = 40  // printed characters before the finding, in a longer line
	tabWidth      = 4   // cells of a tab
)

// ANSI escape sequences, used only if Print gets color.
const (
	red    = "\x1b[1;31m"
	yellow = "\x1b[1;33m"
	bold   = "\x1b[1m"
	reset  = "\x1b[0m"
)

// Print writes each finding as text: position and summary, the source line with the position
// underlined, related positions, and the hint. sources has the content of each file by Pos.File.
// Findings in other files are printed without a source line.
func Print(w io.Writer, l List, sources map[string][]byte, color bool) error {
	p := printer{color: color, lines: map[string][][]byte{}}
	for name, raw := range sources {
		p.lines[name] = bytes.Split(raw, []byte("\n"))
	}
	for _, d := range l {
		p.writeFinding(d)
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

func (p *printer) writeFinding(d Diagnostic) {
	d = d.Clipped()
	if pos := d.Pos.String(); pos != "" {
		p.out.WriteString(p.colorize(bold, pos+":") + " ")
	}
	mark := red
	if d.Severity == Warning {
		mark = yellow
	}
	p.out.WriteString(p.colorize(mark, string(d.Severity)+":") + " ")
	if d.Path != "" {
		p.out.WriteString(printable(d.Path) + ": ")
	}
	p.out.WriteString(printable(d.Summary) + "\n")
	p.writeSnippet(d.Pos, mark)
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

// writeSnippet writes the source line of a position, and underlines the position.
func (p *printer) writeSnippet(pos Pos, mark string) {
	lines := p.lines[pos.File]
	if pos.Line < 1 || pos.Line > len(lines) {
		return
	}
	text := bytes.TrimSuffix(lines[pos.Line-1], []byte("\r"))
	before, under, after := splitAt(text, widenToSecret(text, pos))
	if body := strings.TrimLeft(under, "- "); strings.HasPrefix(body, "[") || strings.HasPrefix(body, "{") {
		under = clipValues(under) // a collection of values
	} else if clipped := Clip(under); clipped != under {
		under, after = clipped, "" // the rest of the line can belong to the same value
	}
	line := expandTabs(before) + expandTabs(under) + expandTabs(after)
	if strings.TrimSpace(line) == "" {
		return
	}
	fmt.Fprintf(&p.out, "%5d | %s\n", pos.Line, strings.TrimRight(line, " "))
	carets := strings.Repeat("^", max(width(expandTabs(under)), 1))
	fmt.Fprintf(&p.out, "%s%s\n", strings.Repeat(" ", len("    1 | ")+width(expandTabs(before))), p.colorize(mark, carets))
}

// maxSecret is the number of bytes before and after a position that are searched for a secret.
const maxSecret = 2048

// widenToSecret widens a position to the whole secret that it overlaps. A part of a secret would
// not match identity.
func widenToSecret(line []byte, pos Pos) Pos {
	start := runesLength(line, pos.Column-1)
	end := start + runesLength(line[start:], max(pos.Width, 1))
	// A long line can have many findings: search only near the position.
	low, high := max(start-maxSecret, 0), min(end+maxSecret, len(line))
	for _, m := range identity.FindAllIndex(line[low:high], -1) {
		from, to := low+m[0], low+m[1]
		if from < end && start < to {
			start, end = min(from, start), max(to, end)
			pos.Column, pos.Width = utf8.RuneCount(line[:start])+1, utf8.RuneCount(line[start:end])
		}
	}
	return pos
}

// runesLength returns the length of the first n characters of a line, in bytes.
func runesLength(line []byte, n int) int {
	length := 0
	for ; n > 0 && length < len(line); n-- {
		_, size := utf8.DecodeRune(line[length:])
		length += size
	}
	return length
}

// splitAt cuts a line into the parts before, at and after a position. It shortens a long line to
// the text around the position.
func splitAt(line []byte, pos Pos) (before, under, after string) {
	length, from := utf8.RuneCount(line), max(pos.Column-1, 0)
	cutLeft, cutRight := "", ""
	if length > maxSnippet {
		if first := max(min(from, length)-contextBefore, 0); first > 0 {
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
	to := min(from+max(pos.Width, 1), len(runes))
	return cutLeft + clipValues(string(runes[:from])), string(runes[from:to]), strings.TrimSuffix(clipValues(string(runes[to:])), cutRight) + cutRight
}

// maxIdentity is an upper bound for the length of an age identity, in characters.
const maxIdentity = 256

// cutIdentity returns how many characters after a cut belong to an identity that begins before the
// cut. Without the beginning these characters would not be recognised as secret.
func cutIdentity(line []byte, cut int) int {
	from := max(cut-maxIdentity, 0)
	for _, at := range identity.FindAllIndex(line[from:min(cut+maxIdentity, len(line))], -1) {
		if from+at[0] < cut && from+at[1] > cut {
			return from + at[1] - cut
		}
	}
	return 0
}

// expandTabs returns a part of a line as printable text, with tabs as spaces.
func expandTabs(text string) string {
	return printable(strings.ReplaceAll(text, "\t", strings.Repeat(" ", tabWidth)))
}

// identity matches texts in the format of a secret: age identities, tokens of git hosts, JSON Web
// Tokens, and credentials in a URL.
var identity = regexp.MustCompile(`(?i:AGE-SECRET-KEY-[0-9A-Z-]+)|\b(?:gh[pousr]_|github_pat_|glpat-|eyJ)[A-Za-z0-9_-]{10,}[A-Za-z0-9_.-]*|(?:://)[^\s/@:]+:[^\s/@]+@`)

// printable replaces control characters of terminals, and text that GitHub runners execute as a
// command anywhere in a log line. Commands with :: are executed only at the beginning of a line,
// where no untrusted text is printed. It also hides secrets that are in the wrong file.
func printable(text string) string {
	text = strings.ReplaceAll(text, "##[", "##"+string(utf8.RuneError))
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, identity.ReplaceAllString(text, "(sensitive)"))
}

// Line returns text as one line of a log. Untrusted names in the text cannot move the terminal's
// cursor, or begin a line that CI executes as a command.
func Line(text string) string {
	return printable(strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "; "))
}

// width returns the width of a text in terminal cells.
func width(text string) int {
	n := 0
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case isWide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// isWide reports whether a character occupies two terminal cells: East Asian ideographs and
// syllables, their full-width forms, and pictographs (Unicode Annex 11, reduced to whole scripts
// and blocks).
func isWide(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) ||
		r >= 0x3000 && r <= 0x303e || r >= 0xff01 && r <= 0xff60 || r >= 0x1f300 && r <= 0x1faff
}

func (p *printer) colorize(sequence, text string) string {
	if !p.color {
		return text
	}
	return sequence + text + reset
}
