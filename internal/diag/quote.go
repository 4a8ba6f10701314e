package diag

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxQuoted is the maximum number of characters of a value in a finding. A value can be a secret in
// the wrong file.
const MaxQuoted = 40

// Clip returns at most MaxQuoted characters of a value, followed by "…" if the value is longer.
func Clip(value string) string {
	if len(value) <= MaxQuoted || utf8.RuneCountInString(value) <= MaxQuoted {
		return value
	}
	n := 0
	for i := range value {
		if n++; n > MaxQuoted {
			return value[:i] + "…"
		}
	}
	return value
}

// ClipQuoted returns the message of a library on one line, with quoted texts and long words
// clipped.
func ClipQuoted(message string) string {
	const maxMessage = 400
	message = strings.Join(strings.Fields(message), " ")
	message = clipMatches(quotedByLibrary, message)
	words := strings.Split(message, " ")
	for i, word := range words {
		if !strings.Contains(word, "/") && !quotedByLibrary.MatchString(word) { // paths of files are not values
			words[i] = Clip(word)
		}
	}
	message = strings.Join(words, " ")
	if runes := []rune(message); len(runes) > maxMessage {
		message = string(runes[:maxMessage]) + "…"
	}
	return message
}

// clipQuotes clips each text in quotes.
func clipQuotes(text string) string {
	if len(text) <= MaxQuoted {
		return text
	}
	return clipMatches(quoted, text)
}

func clipMatches(pattern *regexp.Regexp, text string) string {
	return pattern.ReplaceAllStringFunc(text, func(text string) string {
		mark := text[len(text)-1:]
		return text[:1] + clipEscaped(text[1:len(text)-1]) + mark
	})
}

// clipEscaped is like Clip, but does not cut an escape sequence in two.
func clipEscaped(text string) string {
	clipped := Clip(text)
	if clipped == text {
		return text
	}
	clipped = strings.TrimSuffix(clipped, "…")
	if at := strings.LastIndexByte(clipped, '\\'); at >= 0 {
		rest := len(clipped) - at
		whole := map[byte]int{'x': 4, 'u': 6, 'U': 10}[text[min(at+1, len(text)-1)]]
		odd := (at + 1 - len(strings.TrimRight(clipped[:at+1], "\\"))) % 2
		if odd == 1 && rest < max(whole, 2) {
			clipped = clipped[:at]
		}
	}
	return clipped + "…"
}

// clipPath clips each name in brackets, and each field, of a topology path.
func clipPath(path string) string {
	if len(path) <= MaxQuoted {
		return path
	}
	return pathPart.ReplaceAllStringFunc(path, func(part string) string {
		if exportName.MatchString(part) {
			return part
		}
		return Clip(part)
	})
}

// pathPart is a part of a path between brackets.
var pathPart = regexp.MustCompile(`[^\[\]]+`)

// exportName is NAMESPACE/NAME of an export, which can have more than MaxQuoted characters.
var exportName = regexp.MustCompile(`^[a-z0-9-]{1,63}/[a-z0-9-]{1,63}$`)

// clipValues clips each long value of a line of YAML.
func clipValues(line string) string {
	line = openQuote.ReplaceAllStringFunc(clipMatches(quotedByLibrary, line), Clip)
	return longValue.ReplaceAllStringFunc(line, Clip)
}

// longValue is a text without the characters that end a value in a flow collection.
var longValue = regexp.MustCompile(`[^\s,\[\]{}"](?:[^,\[\]{}":]|:\S){40,}`)

// openQuote is a text in quotes whose end is not on the line.
var openQuote = regexp.MustCompile(`["'][^"']{41,}$`)

var (
	// quoted is a text in double quotes, with escapes. Findings use apostrophes and backquotes
	// for their own words and commands.
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	// quotedByLibrary is a text in any quotes.
	quotedByLibrary = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|'[^']*'")
)

// Quote returns a value in double quotes, clipped, with control characters escaped.
func Quote(value string) string { return strconv.Quote(Clip(value)) }
