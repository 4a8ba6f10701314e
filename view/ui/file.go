package ui

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"hawser.dev/hawser/internal/svg"
)

// HTML returns the page with the snapshot embedded: one file that makes no request. Its policy
// allows only its own script and styles, by their digests.
func (p *Snapshot) HTML() ([]byte, error) {
	// json.Marshal escapes <, >, &, U+2028 and U+2029, so text cannot end the script element.
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("write snapshot: %w", err)
	}
	picture, style, script := pageFile("picture.css"), pageFile("style.css"), bundle("app")
	policy := fmt.Sprintf("default-src 'none'; base-uri 'none'; form-action 'none'; style-src %s %s; script-src %s", digest(picture), digest(style), digest(script))
	title := "Hawser"
	if p.head.Clusterset != "" {
		title = "Clusterset " + p.head.Clusterset
	}
	out := strings.NewReplacer(
		"<title>Hawser</title>\n", `<meta http-equiv="Content-Security-Policy" content="`+policy+"\">\n"+
			`<meta name="referrer" content="no-referrer">`+"\n<title>"+svg.Escape(title)+"</title>\n",
		`<link rel="icon" href="favicon.svg">`+"\n", "",
		`<link id="picture-style" rel="stylesheet" href="picture.css">`, `<style id="picture-style">`+picture+"</style>",
		`<link rel="stylesheet" href="style.css">`, "<style>"+style+"</style>",
		`<script type="module" src="app.js"></script>`+"\n", "",
		"</body>", `<script id="snapshot" type="application/json">`+string(data)+"</script>\n<script>"+script+"</script>\n</body>",
	).Replace(pageFile(indexFile))
	return []byte(out), nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func pageFile(name string) string {
	raw, err := page.ReadFile(path.Join("page", name))
	if err != nil {
		panic(err) // cannot fail: the file is embedded
	}
	return string(raw)
}

var (
	importPattern = regexp.MustCompile(`(?m)^import (?:\* as (\w+)|(\{[^}]*\})) from '\./(\w+)\.js';\n`)
	exportPattern = regexp.MustCompile(`(?m)^export ((?:async )?(?:function|const) (\w+))`)
)

// bundle returns a module of the page and its imports as one script. Each module becomes a function
// that returns its exports.
func bundle(name string) string {
	var out strings.Builder
	out.WriteString("'use strict';\n")
	bundled := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if bundled[name] {
			return
		}
		bundled[name] = true
		source := pageFile(name + ".js")
		for _, m := range importPattern.FindAllStringSubmatch(source, -1) {
			add(m[3])
		}
		var exports []string
		for _, m := range exportPattern.FindAllStringSubmatch(source, -1) {
			exports = append(exports, m[2])
		}
		source = importPattern.ReplaceAllString(source, "const ${1}${2} = module_$3;\n")
		source = exportPattern.ReplaceAllString(source, "$1")
		fmt.Fprintf(&out, "const module_%s = (() => {\n%sreturn { %s };\n})();\n", name, source, strings.Join(exports, ", "))
	}
	add(name)
	return out.String()
}
