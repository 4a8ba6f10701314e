package schema

import "reflect"

// Types that the file may write in two forms.
var (
	HostnamesType = reflect.TypeFor[Hostnames]()
	DynamicType   = reflect.TypeFor[DynamicExports]()
)
