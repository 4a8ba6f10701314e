# KEY: what plan.json says of connections that the key finds: ends, may end, pauses (and for
# how many milliseconds at most), or continues.
key="(^|[^a-z0-9])$1([^a-z0-9]|\$)"
jq -r --arg key "$key" '
  [(.impact.breaks[] | {text: .what, may: (.uncertain // false)}),
   (.access.removed[] | {text: ([.from, .to] | tostring), may: (.uncertain // false)})]
  | map(select(.text | test($key))) as $ends
  | if ($ends | length) > 0 then if all($ends[]; .may) then "may end" else "ends" end else empty end' plan.json | grep . ||
jq -r --arg key "$key" '[.impact.pauses[] | select(.what | test($key)) | .at_most_ms // 30000]
  | if length > 0 then "pauses \(max)" else "continues" end' plan.json
