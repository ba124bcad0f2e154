# frozen_string_literal: true

# Everything in an answer comes from another place, and has the order's number.
class OrdersController < ActionController::API
  SERVICE = URI(ENV.fetch("SERVICE"))

  def show
    number = Current.number = Integer(params[:number])
    File.write("begun", "#{number} #{Process.pid}\n", mode: "a")
    price, item = Heddle.map([method(:price), method(:item)], &:call)
    Order.create!(id: number, worker: Process.pid)
    render json: {number: Current.number, price: price, item: item, order: Order.find(number).id, worker: Process.pid}
  end

  # The pool's connections, and who uses them.
  def pool
    render json: {worker: Process.pid, pool: ApplicationRecord.connection_pool.stat}
  end

  private

  def price
    path = "/#{params[:waiting] ? "waiting" : "prices"}/#{Current.number}"
    Net::HTTP.start(SERVICE.host, SERVICE.port) { |http| http.get(path).body }
  end

  def item = Item.find(Current.number % 100).name
end
