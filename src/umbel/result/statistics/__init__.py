"""What the results of several runs say: who fares how, who is ahead, and how sure that is."""
