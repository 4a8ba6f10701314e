package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// JSONPathPrefix is the prefix of an output format that selects fields of -o json, like kubectl -o
// jsonpath. It is allowed wherever json is allowed.
const JSONPathPrefix = "jsonpath="

// FormatsAnnotation is the annotation of -o that lists the formats of a command.
const FormatsAnnotation = "formats"

// OutputFlag adds -o to a command; if persistent, also to its subcommands. CheckFormat refuses
// other values. The first format is the default. A format may have a description after a tab.
func OutputFlag(cmd *cobra.Command, persistent bool, value *string, formats ...string) {
	flags := cmd.Flags()
	if persistent {
		flags = cmd.PersistentFlags()
	}
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i], _, _ = strings.Cut(f, "\t")
	}
	if slices.Contains(formats, "json") {
		formats = append(slices.Clone(formats), JSONPathPrefix+"\tparts of the JSON, as kubectl takes them")
	}
	texts := make([]string, len(formats))
	for i, f := range formats {
		name, description, described := strings.Cut(f, "\t")
		if texts[i] = name; name == JSONPathPrefix {
			texts[i] += "EXPRESSION"
		} else if described {
			texts[i] += " (" + description + ")"
		}
	}
	last := len(texts) - 1
	flags.StringVarP(value, "output", "o", formats[0], strings.Join(texts[:last], ", ")+" or "+texts[last])
	_ = flags.SetAnnotation("output", FormatsAnnotation, names)                                                       // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// CheckFormat returns an error if a value of -o is not allowed.
func CheckFormat(have string, allowed []string) error {
	if expression, ok := strings.CutPrefix(have, JSONPathPrefix); ok && slices.Contains(allowed, "json") {
		_, err := parseJSONPath(expression)
		return err
	}
	if slices.Contains(allowed, have) {
		return nil
	}
	return fmt.Errorf("-o %q: it is %s", have, strings.Join(allowed, ", "))
}

// parseJSONPath parses the expression after jsonpath=. Braces are optional, as in kubectl.
func parseJSONPath(expression string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(expression, "{") {
		expression = "{." + strings.TrimPrefix(expression, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(expression); err != nil {
		return nil, fmt.Errorf("-o %s%s: %w", JSONPathPrefix, expression, err)
	}
	return path, nil
}

// Encode writes v in the format of -o: json, yaml or jsonpath.
func (e *Env) Encode(format string, v any) error {
	var raw []byte
	var err error
	if expression, ok := strings.CutPrefix(format, JSONPathPrefix); ok {
		path, err := parseJSONPath(expression)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(v)
		var decoded any
		if err == nil {
			err = json.Unmarshal(raw, &decoded)
		}
		var out bytes.Buffer
		if err == nil {
			err = path.Execute(&out, decoded)
		}
		if err != nil {
			return fmt.Errorf("-o %s%s: %w", JSONPathPrefix, expression, err)
		}
		if out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
			out.WriteByte('\n')
		}
		_, err = e.Out.Write(out.Bytes())
		return err
	}
	if format == "yaml" {
		raw, err = yaml.Marshal(v)
	} else {
		raw, err = json.MarshalIndent(v, "", "  ")
		raw = append(raw, '\n')
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = e.Out.Write(raw)
	return err
}

// progressDelay is the time after which a command prints progress.
const progressDelay = 2 * time.Second

// Progress prints what to stderr if the work takes longer than two seconds. The caller must call
// done after the work.
func (e *Env) Progress(what string) (done func()) {
	timer := time.AfterFunc(progressDelay, func() { _, _ = fmt.Fprintf(e.Err, "%s...\n", what) })
	return func() { timer.Stop() }
}

// Colored reports whether output to w has colours: only on a terminal, unless --color or NO_COLOR
// (no-color.org) overrides it.
func (e *Env) Colored(w io.Writer) bool {
	switch e.Color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// IsTerminal reports whether a reader or writer is a terminal.
func IsTerminal(rw any) bool {
	f, ok := rw.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
