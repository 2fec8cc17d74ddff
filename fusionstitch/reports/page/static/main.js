// What happens when the page is opened: little, the rest when it is first shown.

opened.set("graph", startGraph);
opened.set("kernels", startKernels);
opened.set("rejected", startRejected);
opened.set("timeline", startTimeline);
shown.set("graph", drawGraph);
startBars();
startTheme();
startTabs();
addEventListener("hashchange", followAddress);
followAddress();
