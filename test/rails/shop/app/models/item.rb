# frozen_string_literal: true

class Item < ApplicationRecord
end
