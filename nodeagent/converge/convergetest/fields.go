package convergetest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
)

// everyFieldShows changes each struct field and checks that Key or Fields of some sample
// change: a field in neither would drift undetected.
func (l laws[S]) everyFieldShows(t *testing.T) {
	typ := reflect.TypeFor[S]()
	if typ.Kind() != reflect.Struct {
		t.Fatalf("%s is not a struct", typ)
	}
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if name == "Origin" || slices.Contains(l.samples.Silent, name) {
			continue
		}
		shows := slices.ContainsFunc(l.samples.Want, func(s S) bool {
			other := reflect.New(typ).Elem()
			other.Set(reflect.ValueOf(s))
			if err := mutate(other.Field(i)); err != nil {
				t.Fatalf("%s.%s: %v", typ, name, err)
			}
			return face(s) != face(other.Interface().(S))
		})
		if !shows {
			t.Errorf("%s.%s shows neither in Key nor in Fields", typ, name)
		}
	}
}

func face(s diff.Spec) string { return fmt.Sprintf("%q %+v", s.Key(), s.Fields()) }

// mutate sets v to a different value.
func mutate(v reflect.Value) error {
	switch value := v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(otherAddr(value)))
		return nil
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(otherAddr(value.Addr()), max(value.Bits(), 0))))
		return nil
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(otherAddr(value.Addr()), value.Port())))
		return nil
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		more := reflect.New(v.Type().Elem()).Elem()
		if err := mutate(more); err != nil {
			return err
		}
		grown := reflect.MakeSlice(v.Type(), 0, v.Len()+1)
		v.Set(reflect.Append(reflect.AppendSlice(grown, v), more))
	case reflect.Array:
		return mutate(v.Index(0))
	case reflect.Struct:
		return mutate(v.Field(0))
	default:
		return fmt.Errorf("the law cannot change a %s", v.Type())
	}
	return nil
}

func otherAddr(a netip.Addr) netip.Addr {
	if !a.IsValid() {
		return netip.MustParseAddr("192.0.2.73")
	}
	if next := a.Next(); next.IsValid() {
		return next
	}
	return a.Prev()
}

// secretsNeverPrint checks that plan, report, log and all print formats of the values contain
// no secret.
func (l laws[S]) secretsNeverPrint(t *testing.T) {
	var out bytes.Buffer
	for _, handler := range []slog.Handler{
		slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}),
		slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}),
	} {
		engine := l.engine(t)
		engine.Log = slog.New(handler)
		plan, err := engine.Plan(t.Context(), l.samples.Want)
		fmt.Fprint(&out, err)
		show(t, &out, plan)
		show(t, &out, engine.Once(t.Context(), l.samples.Want, "law 8").Changed)
		for _, s := range l.samples.Want {
			fmt.Fprintf(&out, "%v %+v %#v %+v", s, s, s, diff.Change[S]{Op: diff.Create, Key: s.Key(), Want: s}.Deltas())
		}
		l.clear(t)
	}
	secret := false
	for _, s := range l.samples.Want {
		for _, f := range s.Fields() {
			if !f.Secret || strings.Trim(f.Value, "\x00") == "" {
				continue
			}
			secret = true
			raw := []byte(f.Value)
			forms := []string{f.Value, hex.EncodeToString(raw), base64.StdEncoding.EncodeToString(raw), fmt.Sprint(raw)}
			for _, form := range forms {
				if strings.Contains(out.String(), form) {
					t.Errorf("%s: the value of %s is printed", s.Key(), f.Name)
				}
			}
		}
	}
	if secret && !strings.Contains(out.String(), "(sensitive)") {
		t.Error("no output shows that a secret is hidden")
	}
}

func show(t *testing.T, out *bytes.Buffer, changes []converge.Change) {
	t.Helper()
	for _, c := range changes {
		fmt.Fprintf(out, "%v %s %#v\n", c, c, c)
	}
	raw, err := json.Marshal(changes)
	if err != nil {
		t.Fatalf("marshal changes: %v", err)
	}
	out.Write(raw)
}
