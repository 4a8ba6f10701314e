package diag

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxQuoted is the most characters of a value that a finding quotes. A value in the wrong file can
// be a secret.
const MaxQuoted = 40

// Clip returns at most MaxQuoted characters of a value, with "…" if it cut some.
func Clip(value string) string {
	if len(value) <= MaxQuoted || utf8.RuneCountInString(value) <= MaxQuoted {
		return value
	}
	n := 0
	for at := range value {
		if n++; n > MaxQuoted {
			return value[:at] + "…"
		}
	}
	return value
}

// ClipQuoted returns the message of a library on one line, with what it quotes clipped.
func ClipQuoted(message string) string {
	const maxMessage = 400
	message = strings.Join(strings.Fields(message), " ")
	message = quoted.ReplaceAllStringFunc(message, func(text string) string {
		mark := text[len(text)-1:]
		if inner := text[1 : len(text)-1]; Clip(inner) != inner {
			return text[:1] + Clip(inner) + mark
		}
		return text
	})
	words := strings.Split(message, " ")
	for i, word := range words {
		if !strings.Contains(word, "/") && !quoted.MatchString(word) { // paths of files are not values
			words[i] = Clip(word)
		}
	}
	message = strings.Join(words, " ")
	if runes := []rune(message); len(runes) > maxMessage {
		message = string(runes[:maxMessage]) + "…"
	}
	return message
}

// quoted is a text in quotes, with escapes in double quotes.
var quoted = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|'[^']*'")

// Quote returns a value in double quotes, clipped, with control characters escaped.
func Quote(value string) string { return strconv.Quote(Clip(value)) }
