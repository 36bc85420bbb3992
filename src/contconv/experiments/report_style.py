"""The frame of report.html."""

from string import Template

PAGE = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Continuous convolution: $subject</title>
<style>
:root { --ink: #1c2330; --soft: #5b6675; --paper: #ffffff; --edge: #dde2ea; --tint: #f4f6f9; --good: #1d7a46;
  --bad: #b3261e; --link: #2a5fae; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe5ee; --soft: #98a3b3; --paper: #161a21; --edge: #2d3440;
  --tint: #1d222b; --good: #5fca8b; --bad: #ff8a80; --link: #86b4f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; padding-top: 1.25rem; border-top: 1px solid var(--edge); }
p { margin: .5rem 0; max-width: 46rem; }
.lead { font-weight: 600; }
.soft, figcaption { color: var(--soft); font-size: .875rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.summary { font-size: 1.15rem; }
table { border-collapse: collapse; width: 100%; margin: 1.25rem 0; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0; border-bottom: 1px solid var(--edge); }
th { color: var(--soft); font-weight: 500; } td:nth-child(4) { min-width: 7rem; }
.plain td { min-width: 0; font-variant-numeric: tabular-nums; }
code, pre { font: .85em/1.5 ui-monospace, SFMono-Regular, Menlo, monospace; }
code { background: var(--tint); padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: 1rem; border-radius: 6px; overflow-x: auto; max-height: 28rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; display: block; }
figcaption { margin-top: .5rem; max-width: 46rem; }
summary { cursor: pointer; color: var(--link); }
@media (max-width: 44rem) {
  main { padding: 1.25rem 1rem 3rem; }
  thead { display: none; }
  table, tbody, tr, td { display: block; }
  .plain thead { display: table-header-group; } .plain tbody { display: table-row-group; }
  table.plain { display: table; } .plain tr { display: table-row; } .plain td { display: table-cell; }
  tr { border: 1px solid var(--edge); border-radius: 8px; padding: .6rem .8rem; margin-bottom: .75rem; }
  td { border: 0; padding: .15rem 0; } .plain td { padding-right: .75rem; white-space: nowrap; }
  td[data-label]:not([data-label=""]):not([data-label="claim"])::before { content: attr(data-label) ": ";
    color: var(--soft); }
  td[data-label="claim"] { font-weight: 600; }
  .wide { overflow-x: auto; } .wide img { min-width: 40rem; max-width: none; width: 40rem; }
}
</style>
</head>
<body><main>
<h1>Continuous convolution: $subject, run again</h1>
<p class="summary $verdict">$summary.</p>
<p class="soft">From Discrete to Continuous Convolution Layers (arXiv 2006.11120). $minutes in all, with
$circumstances.</p>
<table><thead><tr><th>claim</th><th>the paper</th><th>wanted</th><th>ours</th><th></th></tr></thead>
<tbody>
$rows
</tbody></table>
$sections
</main></body></html>
"""
)
