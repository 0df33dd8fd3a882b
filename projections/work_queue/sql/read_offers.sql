-- Offers that are open as far as Events say; whether one has expired is for the authority's clock to tell.
SELECT offer.group_id, offer.work_item_id, offer.offer_id, offer.expires_at, item.conversation_id, item.contract
FROM work_queue_offer AS offer
JOIN work_queue_work_item AS item ON item.group_id = offer.group_id AND item.work_item_id = offer.work_item_id
WHERE offer.status = 'pending' AND item.state = 'offered'
ORDER BY offer.group_id, offer.work_item_id
