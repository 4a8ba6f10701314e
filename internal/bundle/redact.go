package bundle

import "regexp"

// hidden stands where a secret was.
const hidden = "(not shown)"

// secret is what looks like one, wherever it stands.
type secret struct {
	pattern *regexp.Regexp
	instead string
}

// secrets are the forms that tell what they are by themselves. Keys of WireGuard do so
// only where their name stands before them: a private one looks like a public one, so
// these must not get here at all.
func secrets() []secret {
	return []secret{
		{regexp.MustCompile(`AGE-SECRET-KEY-[A-Z0-9-]+`), hidden},
		{regexp.MustCompile(`-----BEGIN (?s:[A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z))`), hidden},
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), hidden}, // JWT, as service accounts have
		{regexp.MustCompile(`Bearer [A-Za-z0-9._~+/=-]{8,}`), "Bearer " + hidden},
		{regexp.MustCompile(`://[^\s/@:"']*:[^\s/@"']+@`), "://" + hidden + "@"}, // user:password@host
		{regexp.MustCompile(`(?i)((?:private|preshared)[-_ ]?key"?\s*[:=]\s*"?)[A-Za-z0-9+/]{32,}=*`), "${1}" + hidden},
	}
}

// Redact takes out what looks like a secret.
func Redact(text []byte) []byte {
	for _, s := range secrets() {
		text = s.pattern.ReplaceAll(text, []byte(s.instead))
	}
	return text
}
