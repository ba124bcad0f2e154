# frozen_string_literal: true

class Order < ApplicationRecord
end
