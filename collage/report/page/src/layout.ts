// Places for what is drawn, by dagre: layers from the top to the bottom, groups that are open around their members.

import dagre from "@dagrejs/dagre";
import type { Item, View } from "./levels";

export interface Size {
  width: number;
  height: number;
}

/** The centre of each item that is drawn. */
export function placed(view: View, size: (item: Item) => Size): Map<Item, { x: number; y: number }> {
  const graph = new dagre.graphlib.Graph({ compound: true });
  // Network simplex gives the shortest edges, and takes seconds for many nodes.
  const ranker = view.drawn.length > 250 ? "longest-path" : "network-simplex";
  graph.setGraph({ rankdir: "TB", nodesep: 24, ranksep: 34, ranker });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const item of view.open) graph.setNode(String(item.id), {});
  for (const item of view.drawn) graph.setNode(String(item.id), { ...size(item) });
  for (const item of [...view.open, ...view.drawn]) {
    if (item.parent !== null) graph.setParent(String(item.id), String(item.parent.id));
  }
  for (const edge of view.edges) graph.setEdge(String(edge.source.id), String(edge.target.id));
  dagre.layout(graph);
  return new Map(
    view.drawn.map((item) => {
      const { x, y } = graph.node(String(item.id)) as { x: number; y: number };
      return [item, { x, y }];
    }),
  );
}
