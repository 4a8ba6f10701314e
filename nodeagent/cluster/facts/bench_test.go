package facts

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manyEndpoints are 50 Services of 100 endpoints each.
func manyEndpoints() Objects {
	var out Objects
	port, name := int32(8080), "http"
	for s := range 50 {
		service := fmt.Sprintf("s%02d", s)
		out.Services = append(out.Services, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: service},
			Spec:       corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.77.0.%d", s), Ports: []corev1.ServicePort{{Name: name, Port: 80}}},
		})
		slice := discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "sample", Name: service + "-a", Labels: map[string]string{discoveryv1.LabelServiceName: service},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		}
		for e := range 100 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.7.%d.%d", s, e)},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%d", service, e)},
			})
		}
		out.EndpointSlices = append(out.EndpointSlices, slice)
	}
	return out
}

// BenchmarkEndpoint compares the update of one endpoint among 5 000 with the conversion of all.
func BenchmarkEndpoint(b *testing.B) {
	objects := manyEndpoints()
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			FromObjects(objects)
		}
	})
	b.Run("changed", func(b *testing.B) {
		t := NewIndex(nil)
		for i := range objects.Services {
			t.PutService("sample", objects.Services[i].Name, &objects.Services[i], []*discoveryv1.EndpointSlice{&objects.EndpointSlices[i]})
		}
		t.Facts()
		ready, slice := true, objects.EndpointSlices[7].DeepCopy()
		for b.Loop() {
			ready = !ready
			now := ready
			slice.Endpoints[3].Conditions.Ready = &now
			if !t.PutService("sample", "s07", &objects.Services[7], []*discoveryv1.EndpointSlice{slice}) {
				b.Fatal("nothing changed")
			}
			t.Facts()
		}
	})
}

// TestOneEndpointTouchesOneService checks that an update of one endpoint among 5 000 returns the
// unchanged lists of all other Services.
func TestOneEndpointTouchesOneService(t *testing.T) {
	t.Parallel()
	objects := manyEndpoints()
	table := NewIndex(nil)
	for i := range objects.Services {
		table.PutService("sample", objects.Services[i].Name, &objects.Services[i], []*discoveryv1.EndpointSlice{&objects.EndpointSlices[i]})
	}
	before := table.Facts()
	slice := objects.EndpointSlices[7].DeepCopy()
	ready := false
	slice.Endpoints[3].Conditions.Ready = &ready
	table.PutService("sample", "s07", &objects.Services[7], []*discoveryv1.EndpointSlice{slice})
	for i, s := range table.Facts().Services {
		if same := &s.Endpoints[0] == &before.Services[i].Endpoints[0]; same == (s.Name == "s07") {
			t.Errorf("%s: the same endpoints %t", s.Name, same)
		}
	}
}
