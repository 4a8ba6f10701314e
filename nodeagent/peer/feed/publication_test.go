package feed

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
)

// manyExports is the state of a cluster as each pass makes it anew: of export i,
// ready says whether it is.
func manyExports(count int, ready func(i int) bool) model.ClusterState {
	out := live("b")
	for i := range count {
		out.Exports = append(out.Exports, model.ExportState{
			Namespace: "sample", Name: fmt.Sprintf("e%05d", i), Ready: ready(i),
			Offer: &mcs.Offer{
				Created: time.Unix(int64(i), 0).UTC(), Ports: []mcs.Port{{Name: "http", Protocol: "TCP", Port: 80}}, Families: []int{4},
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{242, 2, byte(i >> 8), byte(i)})}, Labels: map[string]string{"tier": "front"},
			},
		})
	}
	return out
}

// TestOnlyWhatChangedIsEncoded: of a state that was made anew, too.
func TestOnlyWhatChangedIsEncoded(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	publish := func(live model.ClusterState) *encoded {
		if err := topic.publish(map[string]RemoteState{"b": {Live: live}}); err != nil {
			t.Fatal(err)
		}
		current, _ := topic.load()
		return current.clusters["b"]
	}
	all := func(int) bool { return true }
	first := publish(manyExports(20, all))
	if publish(manyExports(20, all)) != first {
		t.Error("the same state made a new edition")
	}
	second := publish(manyExports(21, func(i int) bool { return i != 7 }))
	for i := range first.exports {
		if same := &first.exports[i].raw[0] == &second.exports[i].raw[0]; same != (i != 7) {
			t.Errorf("export %d is as it was encoded before: %t", i, same)
		}
	}
	var gone, fresh []string
	second.changes(first, func(p *piece) { gone = append(gone, p.key()) }, func(p *piece) { fresh = append(fresh, p.key()) })
	first.changes(second, func(p *piece) { gone = append(gone, p.key()) }, func(p *piece) { fresh = append(fresh, p.key()) })
	if have, want := fmt.Sprint(gone, fresh), "[sample/e00020] [sample/e00007 sample/e00020 sample/e00007]"; have != want {
		t.Errorf("have %s, want %s", have, want)
	}
}

// TestEveryFieldIsCompared: whatever is added to what is told of an export, a change
// of it is told.
func TestEveryFieldIsCompared(t *testing.T) {
	t.Parallel()
	var host model.ExportHost
	checkFields(t, reflect.TypeFor[model.ExportHost](), func(field int) bool {
		var other model.ExportHost
		fill(reflect.ValueOf(&other).Elem().Field(field))
		return sameHost(host, other)
	})
	checkFields(t, reflect.TypeFor[model.ExportState](), func(field int) bool {
		var none, other model.ExportState
		fill(reflect.ValueOf(&other).Elem().Field(field))
		return sameExport(&none, &other)
	})
}

func checkFields(t *testing.T, of reflect.Type, same func(field int) bool) {
	t.Helper()
	for i := range of.NumField() {
		if same(i) {
			t.Errorf("%s.%s is not compared", of.Name(), of.Field(i).Name)
		}
	}
}

// fill makes a value one that is not empty.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	default:
		panic("no value for a " + v.Kind().String())
	}
}

// BenchmarkPublish changes one export of many: in a state that each pass makes anew,
// and in one of five clusters that are relayed as they came.
func BenchmarkPublish(b *testing.B) {
	for _, count := range []int{100, 1000, 5000} {
		states := [2]model.ClusterState{
			manyExports(count, func(int) bool { return true }),
			manyExports(count, func(i int) bool { return i != count/2 }),
		}
		for i := range states[0].Exports {
			states[1].Exports[i].Offer = states[0].Exports[i].Offer // decided once
		}
		b.Run(fmt.Sprintf("own/%d", count), func(b *testing.B) { publishing(b, states, map[string]RemoteState{}) })
		b.Run(fmt.Sprintf("relay/%d", count), func(b *testing.B) {
			view := map[string]RemoteState{}
			for i := range 4 {
				view[fmt.Sprint("c", i)] = RemoteState{Live: manyExports(count, func(int) bool { return true })}
			}
			publishing(b, states, view)
		})
	}
}

func publishing(b *testing.B, states [2]model.ClusterState, view map[string]RemoteState) {
	topic := newTopic()
	var sent *version
	for i := 0; b.Loop(); i++ {
		view["b"] = RemoteState{Live: states[i%2]}
		if err := topic.publish(view); err != nil {
			b.Fatal(err)
		}
		current, _ := topic.load()
		if _, err := current.framesSince(sent); err != nil {
			b.Fatal(err)
		}
		sent = current
	}
}
