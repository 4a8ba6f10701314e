package change

import (
	"reflect"
	"testing"
)

func example() Message {
	return Message{Ask: true, Changes: true, Number: 7, Read: 8, Answers: 9, From: 10, To: 11, says: []word{
		{cable: 12, said: said{standing: true, uses: true}}, {cable: 13, said: said{proved: true, leaving: true, wished: true}},
	}}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	want := example()
	have, err := decode(want.encode())
	if err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("%+v, %v", have, err)
	}
	raw := want.encode()
	for cut := range raw {
		if _, err := decode(raw[:cut]); err == nil {
			t.Errorf("%d of %d bytes pass", cut, len(raw))
		}
	}
	for _, at := range []int{0, 4, 6} {
		damaged := want.encode()
		damaged[at] = 77
		if _, err := decode(damaged); err == nil {
			t.Errorf("byte %d passes", at)
		}
	}
}

func FuzzDecode(f *testing.F) {
	m := example()
	f.Add(m.encode())
	f.Add([]byte("hwcb"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := decode(raw)
		if err != nil {
			return
		}
		again, err := decode(m.encode())
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v, %v", again, err)
		}
	})
}
