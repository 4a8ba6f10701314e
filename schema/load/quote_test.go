package load

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
)

// TestFindingsQuoteLittle replaces each value, key and collection of the example by a secret, one
// at a time. No form of the findings has more than diag.MaxQuoted consecutive characters of the
// secret.
func TestFindingsQuoteLittle(t *testing.T) {
	t.Parallel()
	raw := example(t)
	secrets := map[string]string{}
	for name, unit := range map[string]string{"word": "s3cr3t", "sentence": "machine git password s3cr3t ", "digits": "7305891264", "mixed": "ab/cd.ef:gh@ij=kl,mn "} {
		secrets[name] = strings.Repeat(unit, 60)
	}
	secrets["lines"] = strings.Repeat("-----BEGIN KEY-----\nc2VjcmV0\n", 20)
	secrets["hostile"] = strings.Repeat("\x1b[2J::error::x\u202e%0A##[set-output]", 10)
	var root yaml.Node
	if err := yaml.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	var nodes []*yaml.Node
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.HeadComment, n.LineComment, n.FootComment = "", "", ""; n.Kind != yaml.DocumentNode {
			nodes = append(nodes, n)
		}
		for _, child := range n.Content {
			walk(child)
		}
	}
	walk(&root)
	for i, n := range nodes {
		for name, secret := range secrets {
			if (i+len(name))%3 != 0 && testing.Short() {
				continue
			}
			before := *n
			*n = yaml.Node{Kind: yaml.ScalarNode, Value: secret}
			if strings.ContainsAny(secret, "\n\x1b") {
				n.Style = yaml.DoubleQuotedStyle
			}
			text, err := yaml.Marshal(&root)
			*n = before
			if err != nil {
				t.Fatal(err)
			}
			_, _, list := Topology("a.yaml", text)
			if len(list) == 0 {
				continue // free text, such as an annotation
			}
			var out bytes.Buffer
			if err := diag.Print(&out, list, map[string][]byte{"a.yaml": text}, false); err != nil {
				t.Fatal(err)
			}
			encoded, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			for form, got := range map[string]string{"text": out.String(), "error": errorOf(list), "json": string(encoded)} {
				if found := quotes(got, secret); found != "" {
					t.Errorf("%s in line %d, as %s: %s\n%.600s", name, before.Line, form, found, got)
				}
			}
			if strings.ContainsAny(out.String(), "\x1b\u202e") || strings.Contains(out.String(), "\n::") || strings.Contains(out.String(), "##[") {
				t.Errorf("%s in line %d: control characters or commands in\n%q", name, before.Line, out.String())
			}
		}
	}
}

// quotes returns a part of a secret in a text that is longer than diag.MaxQuoted; "" if absent.
func quotes(text, secret string) string {
	runes := []rune(secret)
	for at := 0; at+diag.MaxQuoted < min(len(runes), 200); at++ {
		if part := string(runes[at : at+diag.MaxQuoted+1]); part[0] != ' ' && strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

func errorOf(list diag.List) string {
	var out strings.Builder
	for _, d := range list {
		out.WriteString(d.Error() + "\n")
	}
	return out.String()
}
